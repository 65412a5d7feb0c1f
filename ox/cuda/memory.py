"""`torch.cuda.memory`: what CuPy's pool holds. Without a GPU every count is 0."""

from __future__ import annotations

from typing import Any

from ox.cuda.ordinal import ordinal
from ox.devices import cuda
from ox.tensors import memory_stats as tensor_memory


def memory_allocated(device: Any = None) -> int:
    """Bytes in use by arrays."""
    return cuda.memory(f"cuda:{ordinal(device)}").used if cuda.available() else 0


def memory_reserved(device: Any = None) -> int:
    """Bytes that CuPy's pool holds."""
    return cuda.memory(f"cuda:{ordinal(device)}").held if cuda.available() else 0


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
    """The entries of `memory_stats`, one per line."""
    return "\n".join(f"{name}: {count}" for name, count in memory_stats(device).items())


def reset_peak_memory_stats(device: Any = None) -> None:
    """Nothing: the pool counts no peak."""


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def ipc_collect() -> None:
    """Nothing: processes share no memory of GPUs."""
