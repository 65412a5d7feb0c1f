"""The whole product in under a minute: train, export, load, serve, one request over HTTP, and one operator's tests.

`make tiny` runs this. It stops at the first step that fails, with exit code 1. All files go to build/tiny.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "tiny"
OX = [sys.executable, "-m", "ox_cli"]
OPERATOR = "Tanh"


def train() -> None:
    subprocess.run([*OX, "train", "digits", "--epochs", "2", "--limit", "512"], check=True)


def export() -> None:
    subprocess.run([*OX, "export", "model.onnx"], check=True)


def load() -> None:
    """Load the file as a module, and compare its answers with those of the trained model."""
    import numpy as np

    import ox

    recipe, model = ox.train.restore()
    examples = [ox.from_numpy(x) for x in recipe.examples(4)]
    with ox.no_grad():
        got, expected = ox.export.load("model.onnx")(*examples), model(*examples)
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)


def serve() -> None:
    """Serve the file in a process of its own, send one request, and compare the response with the model."""
    from recipes import check_server

    check_server(Path.cwd())


def operator() -> None:
    """Run the generated tests of one operator."""
    files = ("test_schema", "test_node_cases", "test_gradients", "test_recording")
    paths = [str(ROOT / "tests" / "ops" / f"{name}.py") for name in files]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-k", f"[{OPERATOR}]", *paths]
    subprocess.run(command, check=True, cwd=ROOT)


STEPS: Mapping[str, Callable[[], None]] = {
    "train a recipe": train,
    "export it": export,
    "load the file": load,
    "serve it, send one request": serve,
    f"generated tests of {OPERATOR}": operator,
}


def main(steps: Mapping[str, Callable[[], None]] = STEPS, work: Path = WORK) -> int:
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    os.chdir(work)
    began = time.perf_counter()
    for name, step in steps.items():
        print(f"\n== {name}", flush=True)
        try:
            step()
        except Exception as error:
            print(f"tiny: '{name}' failed: {error}", file=sys.stderr)
            return 1
        print(f"-- {time.perf_counter() - began:.1f} s", flush=True)
    print(f"\nEvery step passed in {time.perf_counter() - began:.0f} s; all files are in {work}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
