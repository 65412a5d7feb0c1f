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
from ox.devices import machine
from ox.devices.gpu import installation as cuda_installation
from ox.devices.gpu import nvml
from ox.serve.telemetry import gpu
driver = machine.nvidia_driver()
problem = cuda_installation.driver_problem(driver)
found = driver and [driver.cuda, driver.devices, driver.capabilities]
print(json.dumps([found, machine.nvidia_driver_error(), problem and problem.what, gpu.figures()]))
print(json.dumps([[machine.device_uuid(n) for n in (0, 1, 2)], [nvml.others(n) for n in (0, 1, 2)],
                  [process.bytes for process in nvml.processes(1)]]))
nvml.PROCESSES = 2
print(json.dumps([nvml.others(1)]))
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
        return [value for line in done.stdout.splitlines() for value in json.loads(line)]

    return asked


def test_a_driver_with_two_devices(ask: Callable[[int], Any]) -> None:
    driver, error, problem, figures, uuids, others, held, many = ask(0)
    assert driver == [[13, 2], ["NVIDIA H200", "NVIDIA H200 MIG 1g.18gb"], [[9, 0], [9, 0]]]
    assert error is None and problem is None
    whole, slice_ = "f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff", "a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf"
    assert figures == {
        f"GPU-{whole}": {"used": float(10 << 30), "total": float(150 << 30), "load": 0.25},
        f"MIG-{slice_}": {"used": float(6 << 30), "total": float(18 << 30)},
    }
    assert uuids == [whole, slice_, None]
    assert others == ["", "4000000002 5,120 MiB, 4000000001", ""]  # not this process
    assert held == [5 << 30, 1 << 30, None] and many == others[1]  # of more than there was room for


def test_a_driver_that_does_not_start(ask: Callable[[int], Any]) -> None:
    driver, error, problem, figures, uuids, others, held, many = ask(803)
    assert (
        driver is None and figures == {} and held == [] and many == "" and set(uuids) == {None} and set(others) == {""}
    )
    assert error == "its cuInit gives error 803: the library and the kernel's driver are of different versions"
    assert "803" in problem
