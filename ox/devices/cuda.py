"""NVIDIA devices through CuPy: moving arrays, waiting, memory. The kernels need nothing else: they take `xp`.

Written against CuPy's documentation and not yet run on a device; see docs/gpu.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from ox.devices import cuda_state, device_checks
from ox.dtypes import NARROW, int64
from ox.errors import ArgumentError, DeviceError, DTypeError

INSTALL = 'pip install "ox-onnx[cuda13]" (or "ox-onnx[cuda12]" for an older driver), and an NVIDIA driver'


@cache
def cupy() -> Any:
    """The module `cupy`, with at least one device.

    Raises:
        DeviceError: CuPy is not installed, does not load, or finds no device.
    """
    try:
        import cupy as module
    except ImportError as error:
        raise DeviceError("CuPy is not installed, and it is what runs on cuda", got=str(error), hint=INSTALL) from error
    try:
        count = module.cuda.runtime.getDeviceCount()
    except Exception as error:  # CUDARuntimeError: no driver, or one too old for this CUDA
        from ox.devices.cuda_installation import CUPY, first_problem  # imports what `import ox` does without

        problem = first_problem(CUPY)
        got, hint = (str(error), INSTALL) if problem is None else (f"{problem.what} ({error})", problem.hint)
        raise DeviceError("CuPy finds no CUDA device", got=got, hint=hint) from error
    if not count:
        raise DeviceError("CuPy finds no CUDA device", got="0 devices", hint="nvidia-smi; CUDA_VISIBLE_DEVICES")
    return module


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
    if int(number) >= device_count():
        raise DeviceError(
            f"there is no {device}", expected=f"one of {device_count()} devices", got=device, hint=INSTALL
        )
    return int(number)


def to_device(array: Any, device: str = "cuda") -> Any:
    """A copy of the array on the GPU; the array itself where it already is there. Ordered on the current stream."""
    xp = cupy()
    if array.dtype in NARROW:
        raise DTypeError(f"CuPy has no arrays of {array.dtype}", hint="x.to(ox.float32).to('cuda')")
    with xp.cuda.Device(ordinal(device)):
        made = xp.asarray(array)
    cuda_state.in_use = True
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


def stream(non_blocking: bool = True) -> Any:
    """A stream, to be used as a context manager: ``with ox.devices.cuda.stream(): ...``. `torch.cuda.Stream`."""
    return cupy().cuda.Stream(non_blocking=non_blocking)


@dataclass(frozen=True)
class Memory:
    """Bytes: in use by arrays, held by CuPy's pool, free on the device, on the device in all."""

    used: int
    held: int
    free: int
    total: int


def memory(device: str = "cuda") -> Memory:
    """What the device's memory is used for now. `torch.cuda.memory_allocated`, `memory_reserved`, `mem_get_info`."""
    xp = cupy()
    with xp.cuda.Device(ordinal(device)):
        pool = xp.get_default_memory_pool()
        free, total = xp.cuda.runtime.memGetInfo()
        return Memory(int(pool.used_bytes()), int(pool.total_bytes()), int(free), int(total))


def empty_cache() -> None:
    """Return unused memory of the pool to the device. `torch.cuda.empty_cache`."""
    cupy().get_default_memory_pool().free_all_blocks()
