"""`torch.cuda.memory`: what CuPy's pool holds. Without a GPU every count is 0."""

from __future__ import annotations

from typing import Any

from ox.cuda.ordinal import ordinal
from ox.devices import cuda
from ox.devices.gpu.memory import size_text
from ox.tensors import memory_stats as tensor_memory


def memory_allocated(device: Any = None) -> int:
    """Bytes in use by arrays."""
    return cuda.memory(f"cuda:{ordinal(device)}").used if cuda.available() else 0


def memory_reserved(device: Any = None) -> int:
    """Bytes that CuPy's pool holds."""
    return cuda.memory(f"cuda:{ordinal(device)}").held if cuda.available() else 0


def empty_cache() -> None:
    """Return unused memory of CuPy's pool to the device, also that which `Tensor.record_stream` kept."""
    from ox.devices.gpu.recorded_memory import release_unused

    release_unused()
    cuda.empty_cache()


def memory_stats(device: Any = None) -> dict[str, int]:
    """Bytes under PyTorch's keys; see `ox.memory_stats`."""
    return tensor_memory.memory_stats(f"cuda:{ordinal(device)}" if cuda.available() else "cuda")


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Bytes free on the device, and in all."""
    memory = cuda.memory(f"cuda:{ordinal(device)}")
    return memory.free, memory.total


def max_memory_allocated(device: Any = None) -> int:
    """At most so many bytes were in use since the last `empty_cache`: what the pool holds, for it counts no peak of its
    own. `ox.track_memory` counts one on the CPU."""
    return memory_reserved(device)


max_memory_reserved = max_memory_cached = max_memory_allocated
memory_cached = memory_reserved


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """A table of what CuPy's pool holds and may hold, and of the device's memory. A line without a GPU."""
    if not cuda.available():
        return "no GPU: no memory of one is in use"
    name = f"cuda:{ordinal(device)}"
    memory = cuda.memory(name)
    lines = {
        "in use by arrays": memory.used,
        "held by CuPy's pool": memory.held,
        "at most for the pool": memory.limit,
        "free on the device": memory.free,
        "on the device in all": memory.total,
    }
    if abbreviated:
        lines = dict(list(lines.items())[:2])
    return "\n".join([f"memory of {name}", *(f"  {text:<22}{size_text(size):>12}" for text, size in lines.items())])


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Let CuPy's pool take at most this part, from 0 to 1, of the device's memory: what is more raises
    `ox.cuda.OutOfMemoryError`. ONNX Runtime, cuBLAS and NCCL allocate their memory themselves. The variable
    CUPY_GPU_MEMORY_LIMIT does the same for a process.

    Raises:
        ArgumentError: another number. DeviceError: no such device.
    """
    cuda.set_memory_fraction(fraction, f"cuda:{ordinal(device)}")


def get_per_process_memory_fraction(device: Any = None) -> float:
    """The part of the device's memory that the pool may take. Raises DeviceError if there is no such device."""
    memory = cuda.memory(f"cuda:{ordinal(device)}")
    return memory.limit / memory.total


def reset_peak_memory_stats(device: Any = None) -> None:
    """Nothing: the pool counts no peak."""


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def ipc_collect() -> None:
    """Nothing: processes share no memory of GPUs."""
