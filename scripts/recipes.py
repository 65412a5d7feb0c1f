"""Train, export and serve every recipe, send one request, and check the result that models/README.md states.

    python scripts/recipes.py [recipe ...]          # all of them: about an hour on two quiet cores

Prints one row of a table for each recipe. All files go to build/recipes. The exit code is 1 if a result is too low.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

import ox
from ox.train.recipe.recipe import available

WORK = Path(__file__).parents[1] / "build" / "recipes"
README = Path(__file__).parents[1] / "models" / "README.md"
DATATYPES = {"float32": "FP32", "int64": "INT64", "int32": "INT32", "uint8": "UINT8", "bool": "BOOL"}
OX = [sys.executable, "-m", "ox_cli"]


def main() -> int:
    failed = []
    print("| recipe | parameters | test set | trained in, s | three commands, s |\n|---|---|---|---|---|", flush=True)
    for name in sys.argv[1:] or available():
        began = time.perf_counter()
        folder = WORK / name / time.strftime("%Y%m%d-%H%M%S")
        folder.mkdir(parents=True)
        for step in (["train", name], ["export", "model.onnx"]):
            with open(folder / f"{step[0]}.log", "w") as log:
                subprocess.run([*OX, *step], cwd=folder, check=True, stdout=log, stderr=subprocess.STDOUT)
        check_server(folder)
        (run,) = (folder / "runs").iterdir()
        result = json.loads((run / "result.json").read_text())
        metric, bound, least = expected(name)
        got = result["held_back"][metric]
        enough = got >= bound if least else got <= bound
        failed += [] if enough else [name]
        _, model = ox.train.restore(run)
        print(
            f"| {name} | {sum(p.numel() for p in model.parameters()):,} | {metric} {got:.4g}"
            f"{'' if enough else f', not {bound}'} | {result['seconds']:.0f} | {time.perf_counter() - began:.0f} |",
            flush=True,
        )
    if failed:
        print(f"results below the expected ones: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def expected(name: str) -> tuple[str, float, bool]:
    """What models/README.md expects of a recipe's test set: a metric, its bound, and whether that is the minimum.

    Raises:
        LookupError: the recipe has no row, or the row names no bound.
    """
    row = next((line for line in README.read_text().splitlines() if line.startswith(f"| [{name}](")), "")
    found = re.search(r"\| (\w+) ([\d.]+)( %)? or (more|less)\b", row)
    if found is None:
        raise LookupError(f"models/README.md says no 'accuracy 97 % or more', 'mae 2.1 or less' or the like of {name}")
    return found[1], float(found[2]) / (100 if found[3] else 1), found[4] == "more"


def check_server(folder: Path) -> None:
    """Serve the exported file, send one request, compare the response with the model, and stop the server."""
    (run,) = (folder / "runs").iterdir()
    recipe, model = ox.train.restore(run)
    arrays = recipe.examples(1)
    with ox.no_grad():
        answer = model(*map(ox.from_numpy, arrays))
    expected = [x.numpy() for x in (answer if isinstance(answer, tuple | list) else [answer])]
    command = [*OX, "serve", "model.onnx", "--port", "0", "--device", "cpu"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = next(found[0] for line in server.stdout if (found := re.search(r"http://\S+:\d+", line)))
            got = infer(f"{url}/v2/models/model/infer", dict(zip(recipe.inputs, arrays, strict=True)))
        finally:
            server.send_signal(signal.SIGTERM)
    for one, two in zip(got, expected, strict=True):
        np.testing.assert_allclose(one.reshape(two.shape), two, rtol=1e-4, atol=1e-4 * max(1.0, np.abs(two).max()))


def infer(url: str, arrays: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    """Send one JSON request, as any client does."""
    inputs = [
        {"name": name, "shape": list(x.shape), "datatype": DATATYPES[x.dtype.name], "data": x.ravel().tolist()}
        for name, x in arrays.items()
    ]
    request = urllib.request.Request(url, json.dumps({"inputs": inputs}).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return [np.array(entry["data"]) for entry in json.loads(reply.read())["outputs"]]


if __name__ == "__main__":
    sys.exit(main())
