"""`torch.distributed.elastic`, as far as scripts name it: `ox launch` names the rank that failed by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["record"]

__path__: list[str] = []  # older paths lie below


def record(fn: Callable[..., Any], error_handler: Any = None) -> Callable[..., Any]:
    """`fn` as it is. `torch.distributed.elastic.multiprocessing.errors.record`."""
    return fn
