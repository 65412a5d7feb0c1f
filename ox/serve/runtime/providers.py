"""The providers of ONNX Runtime that sessions are made with, and why CUDA's is not among them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from ox.devices import cudnn_libraries
from ox.devices.cuda_installation import Problem, driver_problem
from ox.devices.machine import Driver, nvidia_driver
from ox.devices.probe import CPU, CUDA, TENSORRT, missing_code, missing_library, preload
from ox.errors import DeviceError, LoadError, OxError
from ox.installation import install_command
from ox.serve.config.placement import Placement
from ox.serve.runtime.cuda_provider import check_numbers
from ox.serve.runtime.source import Source

MIB = 1 << 20
NAMES = {CUDA: "CUDA", TENSORRT: "TensorRT"}

log = logging.getLogger("ox.serve")


def not_loaded(provider: str, got: str, problem: Problem | None = None) -> DeviceError:
    """The error where the provider that was asked for does not work."""
    name, hint = NAMES[provider], install_command("cuda13")
    if provider == TENSORRT:
        hint = "TensorRT's libraries, of the version of this ONNX Runtime, in LD_LIBRARY_PATH"
    if "CUDNN" in got and (conflict := cudnn_libraries.conflict()):
        problem = Problem(conflict, cudnn_libraries.HINT)
    elif problem is None and "SUBLIBRARY_VERSION_MISMATCH" in got:
        problem = Problem("this process has loaded parts of two versions of cuDNN", cudnn_libraries.HINT)
    if problem is not None:
        got, hint = f"{got} ({problem.what})", problem.hint
    hint += f"; or --device {'auto to accept the CPU' if provider == CUDA else 'cuda'}"
    return DeviceError(f"the {name} execution provider did not load", got=got, hint=hint)


def ignored_options(path: Path, provider: str) -> DeviceError:
    """The error of a model with options of the CUDA provider that runs elsewhere."""
    hint = "--device cuda, which says why; or no options"
    return DeviceError(f"{path} has options of cuda, and runs on the CPU", expected=CUDA, got=provider, hint=hint)


def warn_of_cpu(error: OxError) -> None:
    """With `auto`: there is a GPU and a provider for it, and the model runs on the CPU."""
    log.warning("the model runs on the CPU, although this machine has a GPU: %s", error.one_line())


def warn_of_two_cudnns() -> None:
    """A model runs on a GPU, in a process that has loaded two versions of cuDNN."""
    if conflict := cudnn_libraries.conflict():
        log.warning("%s, which do not work together: %s", conflict, cudnn_libraries.HINT)


def check_limit(source: Source, limit: int | None, shared: int = 0) -> None:
    """Whether the weights of a session leave runs a part of its limit. ONNX Runtime allocates weights without looking
    at the limit, and once they are beyond it, there is none (`BFCArena::Reserve` and `Extend`).

    Args:
        limit: `gpu_mem_limit` in bytes; None for none.
        shared: bytes of weights that the session does not hold itself.

    Raises:
        LoadError: they do not.
    """
    own = source.weights - shared
    if limit is not None and own >= limit:
        raise LoadError(
            f"the weights of {source.path} do not fit into gpu_mem_limit, which runs need a part of, too",
            expected=f"less than {limit // MIB:,} MiB",
            got=f"{own / MIB:,.1f} MiB",
            hint="a higher gpu_mem_limit",
        )


def choose(runtime: ModuleType, device: str) -> list[str]:
    """What sessions are made with. Where CUDA cannot work, it is not tried: ONNX Runtime prints its errors."""
    placement = Placement.parse(device)
    if placement.kind == "cpu":
        return [CPU]
    chosen = [TENSORRT, CUDA] if placement.kind == "tensorrt" else [CUDA]
    driver = nvidia_driver()
    try:
        _check(runtime, chosen, placement, driver)
    except DeviceError as error:
        if placement.kind != "auto":
            raise
        if driver is not None and driver.devices and CUDA in runtime.get_available_providers():
            warn_of_cpu(error)
        return [CPU]
    return [*chosen, CPU]


def _check(runtime: ModuleType, chosen: Sequence[str], placement: Placement, driver: Driver | None) -> None:
    """Raises DeviceError if the providers cannot work: one is not in this ONNX Runtime, there is no GPU or not the
    one that is asked for, or a library is missing."""
    there, version = runtime.get_available_providers(), runtime.__version__
    if CUDA not in there:
        raise not_loaded(chosen[0], f"{CPU} (this ONNX Runtime {version} is built for the CPU)")
    if chosen[0] not in there:
        raise not_loaded(chosen[0], f"{CUDA} (this ONNX Runtime {version} is built without it)")
    preload(runtime)
    problem = driver_problem(driver)
    if driver is None or problem is not None:
        raise not_loaded(chosen[0], CPU, problem)
    for provider in chosen:
        library = missing_library(runtime, provider)
        if library is not None:
            raise not_loaded(chosen[0], f"{CPU if provider == CUDA else CUDA} ({library})")
    check_numbers(placement, driver)
    for number in placement.numbers or (0,):
        code = missing_code(runtime, driver, number)
        if code is not None:
            raise not_loaded(chosen[0], CPU, Problem(code, "a build of ONNX Runtime for it, or another GPU"))
