"""`torch.cuda`: NVIDIA devices under PyTorch's names; `ox.devices.cuda` does the work.

Everything here works on a machine without a GPU: `is_available()` is False, memory counts are 0, and a call that needs
a device raises DeviceError, with instructions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ox.cuda import device_properties
from ox.cuda.memory import empty_cache as empty_cache
from ox.cuda.memory import (  # noqa: F401
    get_per_process_memory_fraction,
    ipc_collect,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from ox.cuda.ordinal import current_device as current_device
from ox.cuda.ordinal import ordinal as _ordinal
from ox.cuda.random import (  # noqa: F401
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from ox.devices import cuda
from ox.errors import OutOfMemoryError as OutOfMemoryError

is_available = cuda.available
device_count = cuda.device_count


def is_initialized() -> bool:
    """Whether an array was made on a GPU."""
    from ox.devices import cuda_state

    return cuda_state.in_use


def init() -> None:
    """Load CuPy now. Raises DeviceError where it cannot."""
    cuda.cupy()


def set_device(device: Any) -> None:
    """Let ``"cuda"`` mean this device from now on, in this thread."""
    cuda.use(f"cuda:{_ordinal(device)}")


@contextmanager
def device(device: Any) -> Iterator[None]:
    """Let ``"cuda"`` mean this device in a block. `torch.cuda.device`."""
    with cuda.cupy().cuda.Device(_ordinal(device)):
        yield


def synchronize(device: Any = None) -> None:
    """Wait until the device has completed all queued work."""
    cuda.synchronize(f"cuda:{_ordinal(device)}")


def get_device_properties(device: Any = None) -> device_properties.DeviceProperties:
    """Name, memory and size of a device. Raises DeviceError where there is none."""
    return device_properties.of(cuda.cupy().cuda.runtime.getDeviceProperties(_ordinal(device)))


def get_device_name(device: Any = None) -> str:
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability: (9, 0) for Hopper."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def is_bf16_supported() -> bool:
    """Whether the current device multiplies bfloat16 (compute capability 8.0 and newer); without, an error says so."""
    return is_available() and get_device_capability() >= (8, 0)


def Stream(device: Any = None, priority: int = 0) -> Any:
    """A stream, to be used as a context manager."""
    with cuda.cupy().cuda.Device(_ordinal(device)):
        return cuda.stream()


def Event(enable_timing: bool = False, blocking: bool = False) -> Any:
    """A mark in a stream: ``record()``, ``synchronize()``."""
    return cuda.cupy().cuda.Event(block=blocking, disable_timing=not enable_timing)


def current_stream(device: Any = None) -> Any:
    """The stream on which the work of a device is ordered now."""
    return cuda.current_stream(f"cuda:{_ordinal(device)}")


def default_stream(device: Any = None) -> Any:
    """The stream that is there without being made."""
    return cuda.cupy().cuda.Stream.null


@contextmanager
def stream(stream: Any) -> Iterator[None]:
    """A block in whose calls a stream, and its device, are the current ones; None changes nothing."""
    if stream is None:
        yield
        return
    number = stream.device_id if stream.device_id >= 0 else _ordinal(None)  # the null stream is of all devices
    with cuda.cupy().cuda.Device(number), stream:
        yield


def is_current_stream_capturing() -> bool:
    """False: ox captures no graphs."""
    return False


def get_arch_list() -> list[str]:
    """An empty list: kernels are compiled for the GPU that is there."""
    return []


def __getattr__(name: str) -> Any:
    from ox.core.lazy import missing_attribute_error
    from ox.tensors import legacy_types

    if name in legacy_types.CUDA:
        return legacy_types.CUDA[name]
    if name in ("amp", "nvtx"):
        return import_module(f"ox.cuda.{name}")
    raise missing_attribute_error(__name__, name)
