"""`torch.cuda`: NVIDIA devices under PyTorch's names; `ox.devices.cuda` does the work.

Everything here may be asked on a machine without a GPU: `is_available()` is then False, memory counts are 0, and what
needs a device raises DeviceError with the way to one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ox import memory_use, random
from ox.device_type import device as Device
from ox.devices import cuda

is_available = cuda.available
device_count = cuda.device_count
empty_cache = cuda.empty_cache


def is_initialized() -> bool:
    """Whether an array was made on a GPU."""
    from ox import devices

    return devices.cuda_in_use


def init() -> None:
    """Load CuPy now. Raises DeviceError where it cannot."""
    cuda.cupy()


def current_device() -> int:
    """The number of the device that ``"cuda"`` means now. Raises DeviceError without a GPU."""
    return cuda.ordinal("cuda")


def set_device(device: Any) -> None:
    """Let ``"cuda"`` mean this device from now on, in this thread."""
    cuda.cupy().cuda.Device(_ordinal(device)).use()


@contextmanager
def device(device: Any) -> Iterator[None]:
    """Let ``"cuda"`` mean this device in a block. `torch.cuda.device`."""
    with cuda.cupy().cuda.Device(_ordinal(device)):
        yield


def synchronize(device: Any = None) -> None:
    """Wait until the device has done all that was asked of it."""
    cuda.synchronize(f"cuda:{_ordinal(device)}")


def get_device_properties(device: Any = None) -> dict[str, Any]:
    """What the driver says of a device, by CUDA's names (``name``, ``totalGlobalMem``, ``multiProcessorCount``)."""
    properties = cuda.cupy().cuda.runtime.getDeviceProperties(_ordinal(device))
    return {key: value.decode() if isinstance(value, bytes) else value for key, value in properties.items()}


def get_device_name(device: Any = None) -> str:
    return str(get_device_properties(device)["name"])


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability: (9, 0) for Hopper."""
    properties = get_device_properties(device)
    return int(properties["major"]), int(properties["minor"])


def is_bf16_supported() -> bool:
    """Whether the current device multiplies bfloat16 in hardware (compute capability 8 and newer)."""
    return is_available() and get_device_capability() >= (8, 0)


def memory_allocated(device: Any = None) -> int:
    """Bytes in use by arrays."""
    return cuda.memory(f"cuda:{_ordinal(device)}").used if is_available() else 0


def memory_reserved(device: Any = None) -> int:
    """Bytes that CuPy's pool holds."""
    return cuda.memory(f"cuda:{_ordinal(device)}").held if is_available() else 0


def memory_stats(device: Any = None) -> dict[str, int]:
    """Bytes under PyTorch's keys; see `ox.memory_stats`."""
    return memory_use.memory_stats(f"cuda:{_ordinal(device)}" if is_available() else "cuda")


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Bytes free on the device, and in all."""
    memory = cuda.memory(f"cuda:{_ordinal(device)}")
    return memory.free, memory.total


def manual_seed(seed: int) -> None:
    """Seed the default generator, which serves every device."""
    random.manual_seed(seed)


manual_seed_all = manual_seed


def Stream(device: Any = None, priority: int = 0) -> Any:
    """A stream, to be used as a context manager."""
    with cuda.cupy().cuda.Device(_ordinal(device)):
        return cuda.stream()


def Event(enable_timing: bool = False, blocking: bool = False) -> Any:
    """A mark in a stream: ``record()``, ``synchronize()``."""
    return cuda.cupy().cuda.Event(block=blocking, disable_timing=not enable_timing)


def current_stream(device: Any = None) -> Any:
    return cuda.cupy().cuda.get_current_stream()


def _ordinal(device: Any) -> int:
    if device is None:
        return current_device()
    return device if isinstance(device, int) else cuda.ordinal(str(Device(device)))


def __getattr__(name: str) -> Any:
    from ox import typed
    from ox.doors import refusal

    if name in typed.CUDA:
        return typed.CUDA[name]
    if name == "amp":
        return import_module("ox.cuda.amp")
    raise refusal(__name__, name)
