"""Running sums, products and extremes along a dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ox import ops
from ox.core import operator
from ox.core.constants import integer
from ox.core.promotion import cast
from ox.dtypes import DType, bool_, int64, is_floating
from ox.functions.comparison import bitwise_not
from ox.functions.dimension_arguments import one_dim
from ox.functions.operand_arguments import in_single, only_floats
from ox.functions.return_types import ValuesIndices

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

__all__ = ["cummax", "cummin", "cumprod", "cumsum", "logcumsumexp"]


def _running(op: Any, input: Any, dim: int, dtype: DType | None) -> Tensor:
    if dtype is None and not is_floating(input.array.dtype):
        dtype = int64
    x = input if dtype is None else cast(input, dtype)
    dim = one_dim(dim, x.array.ndim)
    if not x.array.ndim:
        return x
    if x.array.dtype.itemsize < 4 and not is_floating(x.array.dtype):  # ONNX adds up wider ones only
        return cast(op(cast(x, int64), integer(dim)), x.array.dtype)
    return op(x, integer(dim))


def cumsum(input: Any, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Running sum along `dim`; integers and bools sum in int64. `torch.cumsum`, ONNX CumSum."""
    return _running(ops.CumSum, input, dim, dtype)


def cumprod(input: Any, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Running product along `dim`; integers and bools in int64. `torch.cumprod`, ONNX CumProd."""
    return _running(ops.CumProd, input, dim, dtype)


def _places(x: Any, dim: int) -> Tensor:
    x = cast(x, int64) if x.array.dtype == bool_ else x
    return ops.CumulativeArgMax(x, axis=dim)


def _picked(input: Any, dim: int, ordered: Any) -> ValuesIndices:
    dim = one_dim(dim, input.array.ndim)
    if not input.array.ndim:
        return ValuesIndices(input, operator.as_input(np.array(0)))
    indices = _places(ordered(input), dim)
    return ValuesIndices(ops.GatherElements(input, indices, axis=dim), indices)


def cummax(input: Any, dim: int) -> ValuesIndices:
    """The greatest so far along `dim` and its place, the last of equals. `torch.cummax`."""
    return _picked(input, dim, lambda x: x)


def cummin(input: Any, dim: int) -> ValuesIndices:
    """The smallest so far along `dim` and its place, the last of equals. `torch.cummin`."""
    return _picked(input, dim, lambda x: ops.Neg(x) if is_floating(x.array.dtype) else bitwise_not(x))


def logcumsumexp(input: Any, dim: int) -> Tensor:
    """Logarithm of the running sum of exponentials. `torch.logcumsumexp`. Raises DTypeError for whole numbers."""
    only_floats("logcumsumexp", input)
    dim = one_dim(dim, input.array.ndim)
    return in_single(ops.LogCumSumExp, input, axis=dim) if input.array.ndim else input
