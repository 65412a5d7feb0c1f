"""Functions over dimensions: sums, means, extremes, norms, softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ox import ops
from ox.dtypes import DType, bool_, int64, is_floating
from ox.errors import ArgumentError, DTypeError
from ox.functions.comparing import bitwise_not, isclose
from ox.functions.dims import Dims, one_dim, some_dims
from ox.functions.pointwise import div, maximum, minimum, pow, where
from ox.functions.shapes import reshape, squeeze
from ox.operands import cast
from ox.ops.broadcast import axes_tensor
from ox.where import users_line

if TYPE_CHECKING:
    from ox.tensor import Tensor

_SMALL = ("int16", "uint16")  # ONNX does not reduce these


def _axes(x: Any, dim: Dims) -> Tensor | None:
    rank = x.data.ndim
    return None if dim is None or not (chosen := some_dims(dim, rank)) or not rank else axes_tensor(chosen)


def sum(x: Any, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Sum over dimensions, all when None; integers and bools sum in int64. `torch.sum`, ONNX ReduceSum."""
    if dtype is None and not is_floating(x.data.dtype):
        dtype = int64
    x = x if dtype is None else cast(x, dtype)
    return ops.ReduceSum(x, _axes(x, dim), keepdims=int(keepdim))


def _refuse_integers(name: str, x: Any) -> None:
    if not is_floating(x.data.dtype):
        raise DTypeError(
            f"{name} of whole numbers is not one of them",
            where=users_line(3),
            expected="a floating type",
            got=str(x.data.dtype),
            hint=f"x.float().{name}()",
        )


def mean(x: Any, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Mean over dimensions, all when None. `torch.mean`, ONNX ReduceMean.

    Raises:
        DTypeError: integers or bools, without a floating `dtype`.
    """
    x = x if dtype is None else cast(x, dtype)
    _refuse_integers("mean", x)
    return ops.ReduceMean(x, _axes(x, dim), keepdims=int(keepdim))


def amax(x: Any, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Largest over dimensions; equal maxima share the gradient. `torch.amax`, ONNX ReduceMax.

    Raises:
        ArgumentError: there is nothing to choose from.
    """
    axes = _axes(x, dim)
    if not x.data.size and 0 in [x.data.shape[d] for d in some_dims(dim, x.data.ndim)]:
        raise ArgumentError("no elements have no extreme", where=users_line(2), got=f"shape {list(x.data.shape)}")
    dtype = x.data.dtype
    if dtype.name in _SMALL:
        return cast(ops.ReduceMax(cast(x, int64), axes, keepdims=int(keepdim)), dtype)
    return ops.ReduceMax(x, axes, keepdims=int(keepdim))


def _reversed(x: Any) -> Tensor:
    """Smaller values for larger ones; of integers every bit turned, as -x would overflow at the lowest."""
    return ops.Neg(x) if is_floating(x.data.dtype) else bitwise_not(x)


def amin(x: Any, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Smallest over dimensions; as `amax`. `torch.amin`."""
    return _reversed(amax(_reversed(x), dim, keepdim))


def argmax(x: Any, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """int64 position of the largest; of the flattened tensor when `dim` is None. `torch.argmax`, ONNX ArgMax.

    Raises:
        ArgumentError: there is nothing to choose from.
    """
    rank, given = x.data.ndim, dim
    if dim is None or not rank:
        dim = 0 if dim is None else one_dim(dim, rank)
        x = reshape(x, -1)
    else:
        dim = one_dim(dim, rank)
    if not x.data.shape[dim]:
        raise ArgumentError("no elements have no extreme", where=users_line(2), got=f"shape {list(x.data.shape)}")
    if x.data.dtype == bool_:
        x = cast(x, int64)
    if given is None or not rank:
        found = ops.ArgMax(x, axis=0, keepdims=0)
        return reshape(found, [1] * rank) if keepdim and rank else found
    return ops.ArgMax(x, axis=dim, keepdims=int(keepdim))


def argmin(x: Any, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """int64 position of the smallest. `torch.argmin`."""
    return argmax(_reversed(x), dim, keepdim)


def _extreme(position: Any, largest: bool) -> Any:
    def function(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if hasattr(dim, "node"):
            return (maximum if largest else minimum)(x, dim)
        if dim is None:
            return amax(x) if largest else amin(x)
        from ox.results import ValuesIndices

        dim = one_dim(dim, x.data.ndim)
        indices = position(x, dim, True)
        if not x.data.ndim:
            return ValuesIndices(x, indices)
        values = ops.GatherElements(x, indices, axis=dim)
        if not keepdim:
            values, indices = squeeze(values, dim), squeeze(indices, dim)
        return ValuesIndices(values, indices)

    which = "max" if largest else "min"
    function.__name__ = which
    function.__doc__ = (
        f"The {'largest' if largest else 'smallest'} of all, of two tensors, or with `dim` a pair (values, indices)."
        f" `torch.{which}`."
    )
    return function


max, min = _extreme(argmax, True), _extreme(argmin, False)


def var(
    x: Any, dim: Dims = None, correction: int = 1, keepdim: bool = False, *, unbiased: bool | None = None
) -> Tensor:
    """Variance; divides by the count less `correction` (`unbiased=False` is a correction of 0). `torch.var`.

    Raises:
        DTypeError: integers or bools.
    """
    _refuse_integers("var", x)
    if unbiased is not None:
        correction = int(unbiased)
    centred = ops.Sub(x, mean(x, dim, True))
    total = sum(ops.Mul(centred, centred), dim, keepdim)
    count: Any = 1
    for d in some_dims(dim, x.data.ndim):
        count = count * x.shape[d]
    return div(total, count - correction)


def std(
    x: Any, dim: Dims = None, correction: int = 1, keepdim: bool = False, *, unbiased: bool | None = None
) -> Tensor:
    """Standard deviation; arguments as `var`. `torch.std`."""
    return ops.Sqrt(var(x, dim, correction, keepdim, unbiased=unbiased))


def norm(x: Any, p: float = 2, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The p-norm over dimensions: any number, inf or -inf; 0 counts what is not zero. `torch.norm`.

    The gradient of the 2-norm at zero is zero.

    Raises:
        DTypeError: integers or bools.
    """
    _refuse_integers("norm", x)
    if p == 2:
        squares = sum(ops.Mul(x, x), dim, keepdim)
        if x.node is None:
            return ops.Sqrt(squares)
        none = squares == 0  # where the slope of the root is infinite
        return where(none, 0.0, ops.Sqrt(where(none, 1.0, squares)))
    size = ops.Abs(x)
    if p == 1:
        return sum(size, dim, keepdim)
    if p in (float("inf"), -float("inf")):
        return (amax if p > 0 else amin)(size, dim, keepdim)
    if p == 0:
        return sum(cast(size != 0, x.data.dtype), dim, keepdim)
    return pow(sum(pow(size, p), dim, keepdim), 1 / p)


def all(x: Any, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether every element is true or not zero. `torch.all`."""
    return ops.Not(any(ops.Not(cast(x, bool_)), dim, keepdim))


def any(x: Any, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether some element is true or not zero. `torch.any`."""
    return cast(sum(cast(cast(x, bool_), int64), dim, keepdim), bool_)


def softmax(x: Any, dim: int = -1, *, dtype: DType | None = None) -> Tensor:
    """Softmax along one dimension. `torch.softmax`, ONNX Softmax."""
    return _normal(ops.Softmax, x, dim, dtype)


def log_softmax(x: Any, dim: int = -1, *, dtype: DType | None = None) -> Tensor:
    """Logarithm of softmax along one dimension. `torch.log_softmax`, ONNX LogSoftmax."""
    return _normal(ops.LogSoftmax, x, dim, dtype)


def _normal(op: Any, x: Any, dim: int, dtype: DType | None) -> Tensor:
    x, dim = x if dtype is None else cast(x, dtype), one_dim(dim, x.data.ndim)
    return op(x, axis=dim) if x.data.ndim else reshape(op(reshape(x, 1), axis=0), [])


def equal(a: Any, b: Any) -> bool:
    """Whether two tensors have one shape and equal elements, as a Python bool. `torch.equal`."""
    return a.data.shape == b.data.shape and bool(all(a == b))


def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether |a - b| <= atol + rtol·|b| everywhere, as a Python bool. `torch.allclose`."""
    return bool(all(isclose(a, b, rtol, atol, equal_nan)))
