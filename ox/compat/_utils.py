"""`torch._utils`, as far as scripts use it: many tensors as one long one, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ox.core.lazy import missing_attribute_error
from ox.functions import cat
from ox.functions import split as _split
from ox.tensors.tensor import Tensor

__all__ = ["_flatten_dense_tensors", "_unflatten_dense_tensors"]


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """All elements, one tensor after the other, as [n]. `torch._utils._flatten_dense_tensors`."""
    return cat([x.reshape(-1) for x in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The parts of `flat` [n] in the shapes of `tensors`. `torch._utils._unflatten_dense_tensors`."""
    parts = _split(flat, [x.numel() for x in tensors])
    return tuple(part.reshape(x.shape) for part, x in zip(parts, tensors, strict=True))


def __getattr__(name: str) -> Any:
    raise missing_attribute_error(__name__, name)
