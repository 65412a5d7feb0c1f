"""`torch.cpu`: the room of `ox.cpu.amp`, and what a program for either device asks of the CPU."""

from __future__ import annotations

from ox.cpu import amp
from ox.doors import refusal


def is_available() -> bool:
    """True. `torch.cpu.is_available`."""
    return True


def device_count() -> int:
    """1. `torch.cpu.device_count`."""
    return 1


def synchronize(device: object = None) -> None:
    """Nothing: calls on the CPU return when they are done. `torch.cpu.synchronize`."""


def __getattr__(name: str) -> object:
    raise refusal(__name__, name)


__all__ = ["amp", "device_count", "is_available", "synchronize"]
