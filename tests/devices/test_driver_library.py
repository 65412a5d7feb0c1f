"""The NVIDIA driver is asked through its shared libraries: here, real libraries with its argument types."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ox.kernels.compiler import CompilerError, find_compiler

ASKS = """
import json
from ox.devices import cuda_installation, machine
from ox.serve.telemetry import gpu
driver = machine.nvidia_driver()
problem = cuda_installation.driver_problem(driver)
found = driver and [driver.cuda, driver.devices, driver.capabilities]
print(json.dumps([found, machine.nvidia_driver_error(), problem and problem.what, gpu.figures()]))
"""


@pytest.fixture
def ask(tmp_path: Path) -> Callable[[int], Any]:
    """What ox says in a process that finds the libraries, whose first call returns a code."""
    try:
        compiler = find_compiler()
    except CompilerError as error:
        pytest.skip(str(error))

    def asked(code: int) -> Any:
        source = Path(__file__).with_name("driver_library.c")
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            words = [
                *compiler,
                "-x",
                "c",
                f"-DINIT={code}",
                "-shared",
                "-fPIC",
                "-o",
                str(tmp_path / name),
                str(source),
            ]
            subprocess.run(words, check=True)
        env = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", ASKS], env=env, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    return asked


def test_a_driver_with_two_devices(ask: Callable[[int], Any]) -> None:
    driver, error, problem, figures = ask(0)
    assert driver == [[13, 2], ["NVIDIA H200", "NVIDIA H200 MIG 1g.18gb"], [[9, 0], [9, 0]]]
    assert error is None and problem is None
    memory = {"used": float(10 << 30), "total": float(150 << 30)}
    assert figures == {"GPU-0": {**memory, "load": 0.25}, "MIG-1": memory}


def test_a_driver_that_does_not_start(ask: Callable[[int], Any]) -> None:
    driver, error, problem, figures = ask(803)
    assert driver is None and figures == {}
    assert error == "its cuInit gives error 803: the library and the kernel's driver are of different versions"
    assert "803" in problem
