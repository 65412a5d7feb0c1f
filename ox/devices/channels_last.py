"""Images [N, C, H, W] and [N, C, D, H, W] that lie in memory with their channels next to each other, as [N, ..., C]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def to_end(array: Any) -> Any:
    """A view [N, ..., C] of an array [N, C, ...]."""
    return array.transpose(0, *range(2, array.ndim), 1)


def from_end(array: Any) -> Any:
    """A view [N, C, ...] of an array [N, ..., C]."""
    last = array.ndim - 1
    return array.transpose(0, last, *range(1, last))


def is_channels_last(array: Any) -> bool:
    """Whether they lie so, and not in rows; False for arrays of other dimensions."""
    return array.ndim in (4, 5) and not array.flags.c_contiguous and bool(to_end(array).flags.c_contiguous)


def copied(copy: Callable[[Any], Any], array: Any) -> Any:
    """What `copy` gives, which writes rows; of images that are channels last a copy that is, too."""
    return from_end(copy(to_end(array))) if is_channels_last(array) else copy(array)
