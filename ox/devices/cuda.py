"""NVIDIA devices through CuPy: moving arrays, waiting, memory. The kernels need nothing else: they take `xp`.

Written against CuPy's documentation and not yet run on a device; see docs/gpu.md.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from threading import Thread
from typing import Any

import numpy as np

from ox.devices import cuda_denormals, cuda_memory, cuda_state, device_checks
from ox.dtypes import NARROW, int64
from ox.errors import ArgumentError, DeviceError, DTypeError
from ox.installation import install_command

WHICH = "nvidia-smi lists the devices of this machine, CUDA_VISIBLE_DEVICES those of this process"
SLICE = "; of the slices of MIG a process has one, the first of CUDA_VISIBLE_DEVICES"
OLDEST = 12000  # the oldest CUDA of which there is an extra
BFLOAT16 = (8, 0)  # the first compute capability that multiplies it


@cache
def cupy() -> Any:
    """The module `cupy`, with at least one device.

    Raises:
        DeviceError: CuPy is not installed, does not load, or finds no device.
        ArgumentError: see `cuda_denormals.follow_switch`.
    """
    try:
        import cupy as module
    except ImportError as error:
        raise DeviceError("CuPy is not installed, and it is what runs on cuda", got=str(error), hint=_hint()) from error
    runtime = module.cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except Exception as error:  # CUDARuntimeError
        raise _no_device(runtime, error) from error
    if not count:
        raise DeviceError("CuPy finds no CUDA device", got="0 devices", hint=WHICH)
    cuda_state.several, cuda_state.array_type = count > 1, module.ndarray
    cuda_memory.explain_errors(module)
    _import_the_rest()
    cuda_denormals.follow_switch(module)
    return module


def _import_the_rest() -> None:
    """Import what CuPy leaves to its first write by index: `cupyx`, and with it Optuna where that is installed. Optuna
    keeps errors of its own imports, and they keep the variables of all callers, which a thread does not have."""

    def load() -> None:
        with suppress(ImportError):
            import cupyx.optimizing  # noqa: F401

    thread = Thread(target=load)
    thread.start()
    thread.join()


def _hint() -> str:
    return f"{install_command('cuda13')} (or the extra cuda12 for an older driver), and an NVIDIA driver"


def _no_device(runtime: Any, error: Exception) -> DeviceError:
    """The error for a CUDA runtime that finds no device: no driver, one that is too old, or no GPU."""
    driver, needed = int(runtime.driverGetVersion()), int(runtime.runtimeGetVersion())
    if not driver:
        return DeviceError("there is no NVIDIA driver, and CuPy needs one", got=str(error), hint=_hint())
    if driver < needed // 1000 * 1000:
        return DeviceError(
            "the NVIDIA driver is too old for the installed CuPy",
            expected=f"a driver for CUDA {_version(needed)}",
            got=f"one for CUDA {_version(driver)} ({error})",
            hint="a newer driver" + (f"; or {install_command('cuda12')}" if driver >= OLDEST else ""),
        )
    from ox.devices.cuda_installation import CUPY, first_problem  # imports what `import ox` does without

    problem = first_problem(CUPY)
    got, hint = (str(error), WHICH) if problem is None else (f"{problem.what} ({error})", problem.hint)
    return DeviceError("CuPy finds no CUDA device", got=got, hint=hint)


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def available() -> bool:
    """Whether arrays can be made on a GPU. `torch.cuda.is_available`."""
    try:
        cupy()
    except DeviceError:
        return False
    return True


def device_count() -> int:
    """How many devices there are; 0 without CuPy or a driver. `torch.cuda.device_count`."""
    return int(cupy().cuda.runtime.getDeviceCount()) if available() else 0


def ordinal(device: str) -> int:
    """The number in ``"cuda:1"``; ``"cuda"`` is the current device.

    Raises:
        ArgumentError: not a cuda device. DeviceError: no such device here.
    """
    kind, _, number = device.partition(":")
    if kind != "cuda" or (number and not number.isdigit()):
        raise ArgumentError(f"'{device}' is not a device", expected='"cpu", "cuda" or "cuda:0"', got=repr(device))
    if not number:
        return int(cupy().cuda.Device().id)
    return check_number(int(number))


def use(device: str) -> str:
    """Let ``"cuda"`` mean this device from now on, in this thread. Returns its name with its number.
    `torch.cuda.set_device`.

    Raises:
        ArgumentError, DeviceError: as in `ordinal`.
    """
    number = ordinal(device)
    cupy().cuda.Device(number).use()
    return f"cuda:{number}"


def check_ranks(count: int) -> None:
    """Whether so many processes of this machine can each have a GPU.

    Raises:
        DeviceError: there are fewer GPUs, or none that works.
    """
    there = int(cupy().cuda.runtime.getDeviceCount())
    if count > there:
        raise DeviceError(
            "there are more ranks than GPUs on this machine, and each needs one of its own",
            expected=f"at most {there} rank{'s' * (there != 1)}",
            got=f"{count} ranks",
            hint=f"--nproc {there}; {WHICH}",
        )


def check_number(number: int) -> int:
    """The number of a device that there is.

    Raises:
        DeviceError: there is no such device, or none at all.
    """
    count = int(cupy().cuda.runtime.getDeviceCount())
    if not 0 <= number < count:
        last = f" to cuda:{count - 1}" if count > 1 else " alone"
        raise DeviceError(f"there is no cuda:{number}", expected=f"cuda:0{last}", got=f"cuda:{number}", hint=which())
    return number


def which() -> str:
    """How to find out which devices there are."""
    return WHICH + (SLICE if "MIG-" in os.environ.get("CUDA_VISIBLE_DEVICES", "") else "")


def capability(number: int | None = None) -> tuple[int, int]:
    """The compute capability of a device, by default the current one: (9, 0) for Hopper."""
    text = str(cupy().cuda.Device(number).compute_capability)
    return int(text[:-1]), int(text[-1])


def device_name(number: int) -> str:
    """What NVIDIA calls a device. `torch.cuda.get_device_name`."""
    name = cupy().cuda.runtime.getDeviceProperties(number)["name"]
    return name.decode() if isinstance(name, bytes) else str(name)


def check_bfloat16(what: str) -> None:
    """Raises DeviceError if the current device does not multiply bfloat16."""
    if (found := capability()) < BFLOAT16:
        raise DeviceError(
            f"{what} needs a newer GPU",
            expected="compute capability 8.0 or newer",
            got=f"{found[0]}.{found[1]} of cuda:{cupy().cuda.Device().id}",
            hint="float16: ox.autocast('cuda', ox.float16) with ox.GradScaler, or float32",
        )


def to_device(array: Any, device: str = "cuda", blocking: bool = False) -> Any:
    """A copy of the array on the GPU; the array itself where it already is there. Ordered on the current stream.

    Args:
        blocking: wait for the end of the copy. Only a copy from pinned memory goes on when the call has returned.
    """
    xp = cupy()
    if array.dtype in NARROW:
        raise DTypeError(f"CuPy has no arrays of {array.dtype}", hint="x.to(ox.float32).to('cuda')")
    number = ordinal(device)
    if not isinstance(array, np.ndarray) and array.device.id != number:
        return _from_peer(array, number)
    with xp.cuda.Device(number):
        made = xp.asarray(array, blocking=blocking)
    cuda_state.in_use = True
    return made


def _from_peer(array: Any, number: int) -> Any:
    """A copy of an array of another GPU, after the work of that one's current stream; which goes on after the copy."""
    api = cupy().cuda
    with array.device:
        array = cupy().ascontiguousarray(array)  # which CuPy would do after the event
        ready = api.get_current_stream().record(api.Event(disable_timing=True))
    with api.Device(number):
        stream = api.get_current_stream()
        stream.wait_event(ready)
        made = cupy().asarray(array)
        copied = stream.record(api.Event(disable_timing=True))
    with array.device:
        api.get_current_stream().wait_event(copied)  # or its memory could be used again before
    return made


def full(shape: tuple[int, ...], value: Any, dtype: Any, device: str = "cuda") -> Any:
    """An array on the GPU that is filled there. Ordered on the current stream."""
    xp = cupy()
    with xp.cuda.Device(ordinal(device)):
        made = xp.empty(shape, dtype)
        made.fill(value)
    cuda_state.in_use = True
    return made


def arange(start: int, step: int, count: int, dtype: Any, device: str = "cuda") -> Any:
    """``start + step * i`` for each i below `count`, made on the GPU. Ordered on the current stream."""
    xp = cupy()
    with xp.cuda.Device(ordinal(device)):
        made = xp.arange(count, dtype=int64)
        if step != 1:
            made *= step
        if start:
            made += start
    cuda_state.in_use = True
    return made.astype(dtype, copy=False)


def synchronize(device: str = "cuda") -> None:
    """Wait until the device has completed all queued work. `torch.cuda.synchronize`.

    Raises:
        OxError: an index or class that kernels met was out of range; see `ox.devices.device_checks`.
    """
    cupy().cuda.Device(ordinal(device)).synchronize()
    device_checks.raise_if_wrong()


def stream(non_blocking: bool = True, device: str = "cuda") -> Any:
    """A stream of a device, to be used as a context manager: ``with ox.devices.cuda.stream(): ...``.
    `torch.cuda.Stream`."""
    api = cupy().cuda
    with api.Device(ordinal(device)):
        return api.Stream(non_blocking=non_blocking)


def current_stream(device: str = "cuda") -> Any:
    """The stream of a device that its work is ordered on now. `torch.cuda.current_stream`."""
    api = cupy().cuda
    with api.Device(ordinal(device)):
        return api.get_current_stream()


@dataclass(frozen=True)
class Memory:
    """Bytes: in use by arrays, held by CuPy's pool, free on the device, on the device in all, and what the pool may
    hold at most."""

    used: int
    held: int
    free: int
    total: int
    limit: int


def memory(device: str = "cuda") -> Memory:
    """What the device's memory is used for now. `torch.cuda.memory_allocated`, `memory_reserved`, `mem_get_info`."""
    xp = cupy()
    with xp.cuda.Device(ordinal(device)):
        pool = xp.get_default_memory_pool()
        free, total = xp.cuda.runtime.memGetInfo()
        limit = int(pool.get_limit()) or int(total)
        return Memory(int(pool.used_bytes()), int(pool.total_bytes()), int(free), int(total), limit)


def set_memory_fraction(fraction: float, device: str = "cuda") -> None:
    """Let CuPy's pool take at most this part of the device's memory. `torch.cuda.set_per_process_memory_fraction`.

    Raises:
        ArgumentError: not a number from 0 to 1.
    """
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
        raise ArgumentError("a part of a GPU's memory is a number", expected="0.0 to 1.0", got=repr(fraction))
    xp = cupy()
    with xp.cuda.Device(ordinal(device)):
        # to CuPy, 0 is no limit
        xp.get_default_memory_pool().set_limit(size=max(1, int(fraction * xp.cuda.runtime.memGetInfo()[1])))


def empty_cache(device: str = "cuda") -> None:
    """Return unused memory of the device's pool to it. `torch.cuda.empty_cache`."""
    xp = cupy()
    with xp.cuda.Device(ordinal(device)):
        xp.get_default_memory_pool().free_all_blocks()
