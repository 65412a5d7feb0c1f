"""The day with a GPU: tests, user lines, counts, compute-sanitizer, benchmarks and a profile, in ten minutes.

    make gpu                                     # on a machine with an NVIDIA GPU; or
    make gpu GPU_PYTHON=python3                  # with the packages of this Python, and without any network
    make gpu GPU_WHEELS=folder                   # install wheels of missing packages for this run first
    make gpu STAND_IN=host_cuda ARGS=--quick     # try everything on a machine without a GPU
    make gpu ARGS="--from gpu-report"            # write the pages from a run on another machine

Each step is a process with a limit of its own; one that fails or hangs does not stop the others. A step for which no
time is left is listed. The folder takes the output of each step, and report.json. On a GPU the last column of the table
in docs/gpu.md and benchmarks/results/gpu.md are written. The exit code is 1 if anything failed or could not run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpu_run import environment, page, report
from gpu_run.environment import ROOT
from gpu_run.plan import Plan
from gpu_run.steps import Outcome, Run

PAGE, RESULTS = ROOT / "docs" / "gpu.md", ROOT / "benchmarks" / "results" / "gpu.md"
MINUTES = 10.0
MARK = "made-by-make-gpu"  # a file in the folder of a run, which may be deleted


def commit() -> str:
    """The commit of the tree, if git knows it."""
    words = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def no_device(stand_in: str, variables: dict[str, str]) -> str:
    """Why nothing can run here; "" where it can."""
    if stand_in:
        code = "from host_cuda import build; print(build.missing() or '')"
    else:
        code = "from ox.devices import cuda\ntry: cuda.cupy()\nexcept Exception as error: print(error)"
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)
    return done.stdout.strip() or (done.stderr.strip().splitlines() or [""])[-1] * bool(done.returncode)


def write_pages(found: dict[str, Any], folder: Path) -> list[Path]:
    """Write the report, and on a GPU the pages of the tree."""
    (folder / "report.json").write_text(json.dumps(found, indent=1))
    targets = [folder / "gpu.md"]
    targets[0].write_text(report.text(found))
    if not found["stand in"] and not found["quick"]:
        RESULTS.write_text(report.text(found))
        PAGE.write_text(page.written(PAGE.read_text(), found["steps"], report.where(found)))
        targets += [RESULTS, PAGE]
    return targets


def found_by(outcomes: Sequence[Outcome], stand_in: str, quick: bool) -> dict[str, Any]:
    """What report.json has."""
    versions = next((each.findings.get("versions", {}) for each in outcomes if each.name == "versions"), {})
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
        "stand in": stand_in,
        "quick": quick,
        "versions": versions,
        "steps": [each.to_dict() for each in outcomes],
    }


def finish(found: dict[str, Any], folder: Path) -> int:
    """Write the pages, and say what failed."""
    problems = report.problems(found["steps"])
    try:
        for path in write_pages(found, folder):
            print(f"written: {path}")
    except page.PageError as error:
        problems.append(str(error))
    print(f"\n{len(problems)} failed or could not run" if problems else "\nnothing failed")
    for line in problems:
        print(f"  {line}")
    return int(bool(problems))


def new_folder(folder: Path) -> Path:
    """The folder, empty.

    Raises:
        FileExistsError: it has files, and no run has made it.
    """
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).exists():
        raise FileExistsError(f"{folder} has files that are not of an earlier run; expected an empty or new folder")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / MARK).touch()
    return folder


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="in which all of it has to end (10)")
    parser.add_argument("--stand-in", choices=["host_cuda"], default="", help="what computes in place of a GPU")
    parser.add_argument("--quick", action="store_true", help="a little of each step, to try them out")
    parser.add_argument("--wheels", type=Path, help="a folder of wheels of missing packages")
    parser.add_argument("--folder", type=Path, default=ROOT / "gpu-report", help="takes all outputs (gpu-report)")
    parser.add_argument("--from", type=Path, dest="source", help="folder of an earlier run: only write the pages")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    given, began = parsed(arguments), time.monotonic()
    try:
        if given.source:
            return finish(json.loads((given.source / "report.json").read_text()), given.source)
        folder = new_folder(given.folder.absolute())
        if given.wheels:
            installed = environment.install(given.wheels, folder)
            print(f"installed for this run: {', '.join(installed) or 'nothing, nothing was missing'}")
    except (OSError, environment.WheelsError) as error:
        print(f"gpu: {error}", file=sys.stderr)
        return 2
    variables = environment.variables(folder, given.stand_in) | ({"GPU_QUICK": "1"} if given.quick else {})
    wanted = [*environment.needed(), *environment.FOR_TESTS, *environment.HELPFUL]
    if absent := environment.missing_text(wanted, folder):
        print(f"gpu: {absent}", flush=True)
    if reason := no_device(given.stand_in, variables):
        print(f"gpu: nothing can run here: {reason}", file=sys.stderr)
        if not given.stand_in:
            print("gpu: make gpu STAND_IN=host_cuda tries the run itself, without a GPU", file=sys.stderr)
        return 2
    seconds = given.minutes * 60 - (time.monotonic() - began)
    run = Run(folder, seconds, variables, ROOT, lambda line: print(line, flush=True))
    outcomes = run.all(Plan(folder, given.stand_in, given.quick).steps())
    return finish(found_by(outcomes, given.stand_in, given.quick), folder)


if __name__ == "__main__":
    sys.exit(main())
