"""`torch.cpu`: `ox.cpu.amp`, and the queries that programs for both devices make of the CPU."""

from __future__ import annotations

from ox.compat.cpu import amp
from ox.core.lazy import missing_attribute_error


def is_available() -> bool:
    """True. `torch.cpu.is_available`."""
    return True


def device_count() -> int:
    """1. `torch.cpu.device_count`."""
    return 1


def synchronize(device: object = None) -> None:
    """Nothing: calls on the CPU return when they are done. `torch.cpu.synchronize`."""


def __getattr__(name: str) -> object:
    raise missing_attribute_error(__name__, name)


__all__ = ["amp", "device_count", "is_available", "synchronize"]
