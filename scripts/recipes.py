"""Every recipe by the three commands: train, export, serve; one request, and the figure that models/README.md promises.

    python scripts/recipes.py [recipe ...]          # all of them: about an hour on two quiet cores

Prints a row of the table a recipe. All files go to build/recipes. Ends with 1 if a recipe keeps less than it promises.
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
from ox.train.recipe import available

WORK = Path(__file__).parents[1] / "build" / "recipes"
# What the best weights must reach on the held-back part: a metric, and the least or, behind a "-", the most.
PROMISED = {
    "digits": ("accuracy", 0.98),
    "fashion": ("accuracy", 0.72),
    "fashion_cnn": ("accuracy", 0.92),
    "resnet18": ("accuracy", 0.89),
    "resnet18_photos": ("accuracy", 0.85),
    "vit": ("accuracy", 0.87),
    "gpt": ("-perplexity", 3.6),
    "verses": ("accuracy", 0.75),
    "weather": ("-mae", 2.7),
    "cars": ("-mae", 2.1),
    "tumours": ("accuracy", 0.97),
}
DATATYPES = {"float32": "FP32", "int64": "INT64", "int32": "INT32", "uint8": "UINT8", "bool": "BOOL"}
OX = [sys.executable, "-m", "ox_cli"]


def main() -> int:
    broken = []
    print("| recipe | parameters | held back | trained in, s | three commands, s |\n|---|---|---|---|---|", flush=True)
    for name in sys.argv[1:] or available():
        began = time.perf_counter()
        folder = WORK / name / time.strftime("%Y%m%d-%H%M%S")
        folder.mkdir(parents=True)
        for step in (["train", name], ["export", "model.onnx"]):
            with open(folder / f"{step[0]}.log", "w") as log:
                subprocess.run([*OX, *step], cwd=folder, check=True, stdout=log, stderr=subprocess.STDOUT)
        served(folder)
        (run,) = (folder / "runs").iterdir()
        result = json.loads((run / "result.json").read_text())
        metric, bound = PROMISED[name]
        got = result["held_back"][metric.removeprefix("-")]
        kept = got <= bound if metric.startswith("-") else got >= bound
        broken += [] if kept else [name]
        _, model = ox.train.restore(run)
        print(
            f"| {name} | {sum(p.numel() for p in model.parameters()):,} | {metric.removeprefix('-')} {got:.4g}"
            f"{'' if kept else f', promised {bound}'} | {result['seconds']:.0f} | {time.perf_counter() - began:.0f} |",
            flush=True,
        )
    if broken:
        print(f"less than promised: {', '.join(broken)}", file=sys.stderr)
    return 1 if broken else 0


def served(folder: Path) -> None:
    """Starts `ox serve` on the exported file, asks it once, compares, stops it."""
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
            got = ask(f"{url}/v2/models/model/infer", dict(zip(recipe.inputs, arrays, strict=True)))
        finally:
            server.send_signal(signal.SIGTERM)
    for one, two in zip(got, expected, strict=True):
        np.testing.assert_allclose(one.reshape(two.shape), two, rtol=1e-4, atol=1e-4 * max(1.0, np.abs(two).max()))


def ask(url: str, arrays: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    """One request in JSON, as anybody's client sends it."""
    inputs = [
        {"name": name, "shape": list(x.shape), "datatype": DATATYPES[x.dtype.name], "data": x.ravel().tolist()}
        for name, x in arrays.items()
    ]
    request = urllib.request.Request(url, json.dumps({"inputs": inputs}).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return [np.array(entry["data"]) for entry in json.loads(reply.read())["outputs"]]


if __name__ == "__main__":
    sys.exit(main())
