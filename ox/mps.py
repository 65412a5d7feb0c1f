"""`torch.mps`: Apple's GPUs. There are none for ox, which runs on cpu and cuda; whoever asks is told so."""

from __future__ import annotations

from typing import Any

from ox.doors import refusal
from ox.xpu import current_allocated_memory, device_count, empty_cache, is_available, manual_seed, synchronize

__all__ = [
    "current_allocated_memory",
    "device_count",
    "empty_cache",
    "is_available",
    "manual_seed",
    "synchronize",
]


def __getattr__(name: str) -> Any:
    raise refusal(__name__, name)
