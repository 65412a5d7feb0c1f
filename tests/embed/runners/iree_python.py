"""IREE on the CPU: imported through torch-mlir's dialect of ONNX, compiled for this processor."""

import re
import subprocess
import sys
from pathlib import Path

import iree.compiler.version
import iree.runtime
import numpy as np
from runner import Feed, Loaded, main

FOLDER = Path(sys.executable).parent
CPU = [
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
]


def call(program: str, *words: str) -> None:
    """Run one of its programs.

    Raises:
        RuntimeError: it failed; with the operator that it cannot lower, if that is why.
    """
    done = subprocess.run([str(FOLDER / program), *words], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    errors = [line.partition("error: ")[2] for line in done.stderr.splitlines() if "error: " in line]
    operator = re.search(r'"onnx\.(\w+)"', errors[0]) if errors else None
    if operator is not None:
        raise RuntimeError(f"{program} cannot lower {operator[1]}")
    if "PLEASE submit a bug report" in done.stderr or done.returncode < 0:
        raise RuntimeError(f"{program} crashes")
    raise RuntimeError(f"{program}: {errors[0] if errors else done.stderr[-200:].strip() or 'fails without a message'}")


def load(path: str, feed: Feed, outputs: list[str]) -> Loaded:
    mlir, compiled = Path(path).with_suffix(".mlir"), Path(path).with_suffix(".vmfb")
    call("iree-import-onnx", path, "-o", str(mlir))
    call("iree-compile", str(mlir), "-o", str(compiled), *CPU)
    module = iree.runtime.load_vm_flatbuffer_file(str(compiled), driver="local-task")
    (name,) = (n for n in module.vm_module.function_names if not n.startswith("__") and "$" not in n)

    def run(feed: Feed) -> list[np.ndarray]:
        results = getattr(module, name)(*feed.values())
        return [np.asarray(y) for y in (results if isinstance(results, (tuple, list)) else [results])]

    return run


main(iree.compiler.version.VERSION, load)
