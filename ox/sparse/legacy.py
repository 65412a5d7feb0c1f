"""Sparse tensors of one element type, as older scripts make them: `torch.sparse.FloatTensor` and its like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ox.dtypes import DType, float16, float32, float64, int32, int64
from ox.sparse.creation import sparse_coo_tensor
from ox.sparse.tensor import SparseTensor


def _of(name: str, dtype: DType) -> Callable[..., SparseTensor]:
    def made(indices: Any = None, values: Any = None, size: Sequence[int] | None = None) -> SparseTensor:
        if indices is None:
            return sparse_coo_tensor((0,), dtype=dtype)
        return sparse_coo_tensor(indices, values, size, dtype=dtype)

    made.__name__ = made.__qualname__ = name
    made.__doc__ = (
        f"`sparse_coo_tensor` of {dtype}: indices, values and a size, or a size alone. `torch.sparse.{name}`."
    )
    return made


FloatTensor, DoubleTensor, HalfTensor = (
    _of("FloatTensor", float32),
    _of("DoubleTensor", float64),
    _of("HalfTensor", float16),
)
IntTensor, LongTensor = _of("IntTensor", int32), _of("LongTensor", int64)

__all__ = ["DoubleTensor", "FloatTensor", "HalfTensor", "IntTensor", "LongTensor"]
