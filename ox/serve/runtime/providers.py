"""The providers of ONNX Runtime that sessions are made with, and why CUDA's is not among them."""

from __future__ import annotations

import logging
from types import ModuleType

from ox.devices.cuda_installation import Problem, driver_problem
from ox.devices.machine import Driver, nvidia_driver
from ox.devices.probe import CPU, CUDA, missing_library, preload
from ox.errors import DeviceError
from ox.serve.config.placement import Placement
from ox.serve.runtime.cuda_provider import check_numbers

log = logging.getLogger("ox.serve")


def no_cuda(got: str, problem: Problem | None = None) -> DeviceError:
    hint = 'pip install "ox-onnx[cuda13]"'
    if problem is not None:
        got, hint = f"{got} ({problem.what})", problem.hint
    hint += "; or --device auto to accept the CPU"
    return DeviceError("the CUDA execution provider did not load", got=got, hint=hint)


def warn_of_cpu(error: DeviceError) -> None:
    """With `auto`: there is a GPU and a provider for it, and the model runs on the CPU."""
    log.warning("the model runs on the CPU, although this machine has a GPU: %s", error.one_line())


def choose(runtime: ModuleType, device: str) -> list[str]:
    """What sessions are made with. Where CUDA cannot work, it is not tried: ONNX Runtime prints its errors."""
    placement = Placement.parse(device)
    if placement.kind == "cpu":
        return [CPU]
    driver = nvidia_driver()
    try:
        _check_cuda(runtime, placement, driver)
    except DeviceError as error:
        if placement.kind == "cuda":
            raise
        if driver is not None and driver.devices and CUDA in runtime.get_available_providers():
            warn_of_cpu(error)
        return [CPU]
    return [CUDA, CPU]


def _check_cuda(runtime: ModuleType, placement: Placement, driver: Driver | None) -> None:
    """Raises DeviceError if the CUDA provider cannot work: it is not in this ONNX Runtime, there is no GPU or not the
    one that is asked for, or a library is missing."""
    if CUDA not in runtime.get_available_providers():
        raise no_cuda(f"{CPU} (this ONNX Runtime {runtime.__version__} is built for the CPU)")
    preload(runtime)
    problem = driver_problem(driver)
    if driver is None or problem is not None:
        raise no_cuda(CPU, problem)
    library = missing_library(runtime, CUDA)
    if library is not None:
        raise no_cuda(f"{CPU} ({library})")
    check_numbers(placement, driver)
