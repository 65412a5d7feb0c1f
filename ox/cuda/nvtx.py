"""`torch.cuda.nvtx`: marks for NVIDIA's profilers; without a GPU they do nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ox.devices import cuda

__all__ = ["mark", "range", "range_pop", "range_push"]


def range_push(msg: str) -> None:
    """Begin a range."""
    if cuda.available():
        cuda.cupy().cuda.nvtx.RangePush(msg)


def range_pop() -> None:
    """End the range that was begun last."""
    if cuda.available():
        cuda.cupy().cuda.nvtx.RangePop()


def mark(msg: str) -> None:
    """Mark an instant."""
    if cuda.available():
        cuda.cupy().cuda.nvtx.Mark(msg)


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A block as a range; the text is formatted with the arguments."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
