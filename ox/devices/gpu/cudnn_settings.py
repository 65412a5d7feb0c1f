"""How cuDNN is used: the switches of `ox.backends.cudnn`, with the meaning of `torch.backends.cudnn`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Settings:
    """Switches. Those that choose among the ways of cuDNN to compute are part of the key of a plan."""

    enabled: bool = True
    deterministic: bool = True  # only ways that give the same bits in each run
    allow_tf32: bool = False  # convolutions of float32 may round their factors to TF32
    benchmark: bool = False  # several ways are timed at the first call, and the fastest one is kept
    benchmark_limit: int = 10  # so many, from the most promising on; 0: all


_current = Settings()


def current() -> Settings:
    """The switches as they are."""
    return _current


def change(**switches: Any) -> None:
    """Set some, for the process."""
    global _current
    _current = replace(_current, **switches)


@contextmanager
def changed(**switches: Any) -> Iterator[None]:
    """Set some for a block."""
    global _current
    before = _current
    _current = replace(before, **switches)
    try:
        yield
    finally:
        _current = before
