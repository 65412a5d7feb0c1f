"""`torch.distributed.elastic`, as far as scripts use it. `ox launch` reports the failed rank without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["record"]

__path__: list[str] = []  # PyTorch has submodules here


def record(fn: Callable[..., Any], error_handler: Any = None) -> Callable[..., Any]:
    """`fn` as it is. `torch.distributed.elastic.multiprocessing.errors.record`."""
    return fn
