"""`make embed`: fifteen exported models in the runtimes that people build into their programs, and docs/runtimes.md.

    python tests/embed/embed.py                                    # everything, about half an hour on two cores
    python tests/embed/embed.py --runtimes TVM IREE --models GRU    # some; the page stays as it is

    python tests/embed/embed.py --from .embed/results.json          # write the page again

Environments, files and results go to .embed; environments are used again. The exit code is 1 if a file fails in
ONNX Runtime, or with its target in any runtime but ncnn.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
from embed_page import BEGIN, END, Result, tables
from embedded_models import MODELS, export, trained
from embedded_runtimes import RUNTIMES, Runtime, install, missing, run

import ox
from ox import tolerance

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "runtimes.md"
ALL = {runtime.name for runtime in RUNTIMES if runtime.name.startswith("ONNX Runtime")}  # what must run every file


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runtimes", nargs="*", default=[r.name for r in RUNTIMES], choices=[r.name for r in RUNTIMES])
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--work", type=Path, default=ROOT / ".embed")
    parser.add_argument("--from", type=Path, dest="results")
    options = parser.parse_args()
    work = options.work.resolve()
    if options.results:
        results = [Result(**each) for each in json.loads(options.results.read_text())]
        write(results)
        return 0
    shutil.rmtree(work / "files", ignore_errors=True)  # of an ox that may have been another
    results = []
    for runtime in RUNTIMES:
        if runtime.name not in options.runtimes:
            continue
        lacks = missing(runtime)
        if lacks:
            print(f"{runtime.name}: {lacks}", file=sys.stderr)
            continue
        install(runtime, work)
        for model in options.models:
            for target in dict.fromkeys((None, runtime.target)):
                found = measure(runtime, model, target, work, work / "files")
                results.append(found)
                print(f"{runtime.name}, {model}, {target or 'as exported'}: {found}", flush=True)
    (work / "results.json").write_text(json.dumps([asdict(r) for r in results], indent=1))
    if len(results) == len(MODELS) * sum(1 + (runtime.target is not None) for runtime in RUNTIMES):
        write(results)
    return int(any(r.reason and (r.target or r.runtime in ALL) for r in results if r.runtime != "ncnn"))


def write(results: list[Result]) -> None:
    """The tables of the page between their markers."""
    block = f"{BEGIN}\n\n{tables(results)}\n\n{END}"
    text = PAGE.read_text()
    PAGE.write_text(re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: block, text, flags=re.DOTALL))


def file_of(model: str, target: str | None, files: Path) -> Path:
    """The exported file of a model for a target; written once."""
    path = files / (target or "plain") / f"{model.replace('/', '-').replace(' ', '_')}.onnx"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        export(model, path, **({"target": target} if target else {}))
    return path


def expected(model: str) -> list[np.ndarray]:
    """What the eager model gives for its example."""
    with ox.no_grad():
        results = trained(model)(*map(ox.from_numpy, MODELS[model].example))
    return [y.numpy() for y in (results if isinstance(results, tuple) else (results,))]


def measure(runtime: Runtime, model: str, target: str | None, work: Path, files: Path) -> Result:
    """Run one file in one runtime, of which `work` has the environment, and compare."""
    try:
        path = file_of(model, target, files)
    except ox.errors.OxError as error:
        return Result(runtime.name, model, target, "", 0.0, reason=f"not exported: {error.what}")
    ends = onnx.load(path).graph
    feed = {info.name: array for info, array in zip(ends.input, MODELS[model].example, strict=True)}
    done = run(runtime, work, path, feed, [info.name for info in ends.output])
    if done.reason is not None:
        return Result(runtime.name, model, target, done.version, done.seconds, reason=done.reason)
    right = expected(model)
    if len(done.outputs) != len(right):
        reason = f"gives {len(done.outputs)} outputs in place of {len(right)}"
        return Result(runtime.name, model, target, done.version, done.seconds, reason=reason)
    outputs = [flat_ones(got, y) if not runtime.batched else got for got, y in zip(done.outputs, right, strict=True)]
    found = [tolerance.compare(np.asarray(got, y.dtype), y) for got, y in zip(outputs, right, strict=True)]
    far = max(each.max_abs for each in found)
    wrong = None
    if not all(each.ok for each in found):
        shapes = [(got.shape, y.shape) for got, y in zip(outputs, right, strict=True) if got.shape != y.shape]
        wrong = (
            f"gives sizes {list(shapes[0][0])} in place of {list(shapes[0][1])}" if shapes else "gives other numbers"
        )
    return Result(runtime.name, model, target, done.version, done.seconds, far, wrong)


def flat_ones(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """An output in the sizes that are expected, where sizes of 1 alone are different."""
    plain = [[n for n in array.shape if n != 1] for array in (got, expected)]
    return got.reshape(expected.shape) if plain[0] == plain[1] else got


if __name__ == "__main__":
    raise SystemExit(main())
