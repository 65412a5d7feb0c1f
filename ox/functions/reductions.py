"""Functions over dimensions: sums, means, extremes, softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ox import ops
from ox.core.constants import axes_tensor
from ox.core.promotion import cast, row_major, upcast_half
from ox.core.tensor import is_tensor
from ox.dtypes import DType, bool_, int64, is_floating, uint8
from ox.errors import ArgumentError, DTypeError
from ox.functions.comparison import isclose, isnan
from ox.functions.dimension_arguments import Dims, one_dim, some_dims
from ox.functions.operand_arguments import floating
from ox.functions.pointwise import maximum, minimum, where
from ox.functions.return_types import MinMax, ValuesIndices
from ox.functions.shapes import reshape, squeeze

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

__all__ = [
    "all", "allclose", "amax", "amin", "aminmax", "any", "argmax", "argmin", "count_nonzero", "equal", "log_softmax",
    "logsumexp", "max", "mean", "min", "nanmean", "nansum", "prod", "softmax", "sum",
]  # fmt: skip

_SMALL = ("int16", "uint16")  # ONNX does not reduce these


def axes_of(input: Any, dim: Dims) -> Tensor | None:
    """Dimensions as ONNX's reductions take them: None for all."""
    rank = input.array.ndim
    return None if dim is None or not (chosen := some_dims(dim, rank)) or not rank else axes_tensor(chosen)


def sum(input: Any, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Sum over dimensions, all when None; integers and bools sum in int64. `torch.sum`, ONNX ReduceSum."""
    if dtype is None and not is_floating(input.array.dtype):
        dtype = int64
    input = input if dtype is None else cast(input, dtype)
    kind = input.array.dtype
    if kind.itemsize < 4 and not is_floating(kind):  # ONNX adds up wider ones only
        return cast(ops.ReduceSum(cast(input, int64), axes_of(input, dim), keepdims=int(keepdim)), kind)
    return ops.ReduceSum(input, axes_of(input, dim), keepdims=int(keepdim))


def _refuse_integers(name: str, x: Any) -> None:
    if not is_floating(x.array.dtype):
        raise DTypeError(
            f"{name} does not support integers",
            expected="a floating type",
            got=str(x.array.dtype),
            hint=f"x.float().{name}()",
        )


def mean(input: Any, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Mean over dimensions, all when None. `torch.mean`, ONNX ReduceMean.

    Raises:
        DTypeError: integers or bools, without a floating `dtype`.
    """
    input = input if dtype is None else cast(input, dtype)
    _refuse_integers("mean", input)
    return ops.ReduceMean(input, axes_of(input, dim), keepdims=int(keepdim))


def _extreme_over(op: Any, x: Any, dim: Dims, keepdim: bool) -> Tensor:
    axes = axes_of(x, dim)
    if not x.array.size and 0 in [x.static_shape[d] for d in some_dims(dim, x.array.ndim)]:
        raise ArgumentError("a tensor without elements has no maximum or minimum", got=f"shape {list(x.static_shape)}")
    dtype = x.array.dtype
    if dtype.name in _SMALL:
        return cast(op(cast(x, int64), axes, keepdims=int(keepdim)), dtype)
    return op(x, axes, keepdims=int(keepdim))


def amax(input: Any, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Largest over dimensions; equal maxima share the gradient. `torch.amax`, ONNX ReduceMax.

    Raises:
        ArgumentError: there is nothing to choose from.
    """
    return _extreme_over(ops.ReduceMax, input, dim, keepdim)


def amin(input: Any, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Smallest over dimensions; as `amax`. `torch.amin`, ONNX ReduceMin."""
    return _extreme_over(ops.ReduceMin, input, dim, keepdim)


def aminmax(input: Any, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """Smallest and largest, of all or along one dimension. `torch.aminmax`."""
    return MinMax(amin(input, dim, keepdim), amax(input, dim, keepdim))


def _position(op: Any, x: Any, dim: int | None, keepdim: bool) -> Tensor:
    rank, given = x.array.ndim, dim
    if dim is None or not rank:
        dim = 0 if dim is None else one_dim(dim, rank)
        x = reshape(x, -1)
    else:
        dim = one_dim(dim, rank)
    if not x.static_shape[dim]:
        raise ArgumentError("a tensor without elements has no maximum or minimum", got=f"shape {list(x.static_shape)}")
    if x.array.dtype == bool_:
        x = cast(x, int64)
    if given is None or not rank:
        found = op(x, axis=0, keepdims=0)
        return reshape(found, [1] * rank) if keepdim and rank else found
    return op(x, axis=dim, keepdims=int(keepdim))


def argmax(input: Any, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """int64 position of the largest; of the flattened tensor when `dim` is None. `torch.argmax`, ONNX ArgMax.

    Raises:
        ArgumentError: there is nothing to choose from.
    """
    return _position(ops.ArgMax, input, dim, keepdim)


def argmin(input: Any, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """int64 position of the smallest; as `argmax`. `torch.argmin`, ONNX ArgMin."""
    return _position(ops.ArgMin, input, dim, keepdim)


def _extreme(position: Any, largest: bool) -> Any:
    def function(input: Any, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
        dim = dim if other is None else other
        if is_tensor(dim):
            return (maximum if largest else minimum)(input, dim)
        if dim is None:
            return amax(input) if largest else amin(input)
        dim = one_dim(dim, input.array.ndim)
        indices = position(input, dim, True)
        if not input.array.ndim:
            return ValuesIndices(input, indices)
        values = ops.GatherElements(input, indices, axis=dim)
        if not keepdim:
            values, indices = squeeze(values, dim), squeeze(indices, dim)
        return ValuesIndices(values, indices)

    which = "max" if largest else "min"
    function.__name__ = function.__qualname__ = which
    function.__doc__ = (
        f"The {'largest' if largest else 'smallest'} of all, of two tensors, or with `dim` a pair (values, indices)."
        f" `torch.{which}`."
    )
    return function


max, min = _extreme(argmax, True), _extreme(argmin, False)


def prod(input: Any, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Product over dimensions, all when None; integers and bools in int64. `torch.prod`, ONNX ReduceProd."""
    if dtype is None and not is_floating(input.array.dtype):
        dtype = int64
    input = input if dtype is None else cast(input, dtype)
    kind = input.array.dtype
    if kind.itemsize < 4 and not is_floating(kind):  # ONNX multiplies wider ones only
        return cast(prod(cast(input, int64), dim, keepdim), kind)
    return ops.ReduceProd(input, axes_of(input, dim), keepdims=int(keepdim))


def logsumexp(input: Any, dim: Dims, keepdim: bool = False) -> Tensor:
    """Logarithm of the sum of exponentials over dimensions, without overflow. `torch.logsumexp`,
    ONNX ReduceLogSumExp."""
    input = floating(input)
    return ops.ReduceLogSumExp(input, axes_of(input, dim), keepdims=int(keepdim))


def nansum(input: Any, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """`sum`, NaN counted as 0. `torch.nansum`."""
    return sum(where(isnan(input), 0.0, input) if is_floating(input.array.dtype) else input, dim, keepdim, dtype=dtype)


@upcast_half
def nanmean(input: Any, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """`mean` of what is not NaN. `torch.nanmean`. Raises DTypeError for integers or bools."""
    _refuse_integers("nanmean", input)
    total = nansum(input, dim, keepdim, dtype=dtype)
    return ops.Div(total, cast(sum(ops.Not(isnan(input)), dim, keepdim), total.array.dtype))


def count_nonzero(input: Any, dim: Dims = None) -> Tensor:
    """How many elements over dimensions are not zero, int64. `torch.count_nonzero`."""
    return sum(cast(input, bool_), dim)


def all(input: Any, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether every element is true or not zero; uint8 answers in uint8. `torch.all`."""
    found = ops.Not(_some(ops.Not(cast(input, bool_)), dim, keepdim))
    return cast(found, uint8) if input.array.dtype == uint8 else found


def any(input: Any, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether some element is true or not zero; uint8 answers in uint8. `torch.any`."""
    found = _some(cast(input, bool_), dim, keepdim)
    return cast(found, uint8) if input.array.dtype == uint8 else found


def _some(truth: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    return cast(sum(cast(truth, int64), dim, keepdim), bool_)


def softmax(input: Any, dim: int = -1, dtype: DType | None = None) -> Tensor:
    """Softmax along one dimension. `torch.softmax`, ONNX Softmax."""
    return _normal(ops.Softmax, input, dim, dtype)


def log_softmax(input: Any, dim: int = -1, dtype: DType | None = None) -> Tensor:
    """Logarithm of softmax along one dimension. `torch.log_softmax`, ONNX LogSoftmax."""
    return _normal(ops.LogSoftmax, input, dim, dtype)


def _normal(op: Any, x: Any, dim: int, dtype: DType | None) -> Tensor:
    x, dim = x if dtype is None else cast(x, dtype), one_dim(dim, x.array.ndim)
    return op(row_major(x), axis=dim) if x.array.ndim else reshape(op(reshape(x, 1), axis=0), [])


def equal(input: Any, other: Any) -> bool:
    """Whether two tensors have one shape and equal elements, as a Python bool. `torch.equal`."""
    return input.static_shape == other.static_shape and bool(all(input == other))


def allclose(input: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether |a - b| <= atol + rtol·|b| everywhere, as a Python bool. `torch.allclose`."""
    return bool(all(isclose(input, other, rtol, atol, equal_nan)))
