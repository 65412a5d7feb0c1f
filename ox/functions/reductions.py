"""Functions over dimensions: sums, means, extremes, norms, softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ox import ops
from ox.dtypes import DType, bool_, int64, is_floating
from ox.operands import cast
from ox.ops.broadcast import axes_tensor

if TYPE_CHECKING:
    from ox.tensor import Tensor

from ox.functions.pointwise import div, maximum, minimum, pow
from ox.functions.shapes import reshape, squeeze

Dims = int | Sequence[int] | None


def _axes(dim: Dims) -> Tensor | None:
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        return None
    return axes_tensor([dim] if isinstance(dim, int) else list(dim))


def sum(x: Any, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Sum over dimensions, all when None; integers and bools sum in int64. `torch.sum`."""
    if dtype is None and not is_floating(x.data.dtype):
        dtype = int64
    x = x if dtype is None else cast(x, dtype)
    return ops.ReduceSum(x, _axes(dim), keepdims=int(keepdim))


def mean(x: Any, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Mean over dimensions, all when None. `torch.mean`."""
    return ops.ReduceMean(x, _axes(dim), keepdims=int(keepdim))


def amax(x: Any, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Largest over dimensions; equal maxima share the gradient. `torch.amax`."""
    return ops.ReduceMax(x, _axes(dim), keepdims=int(keepdim))


def amin(x: Any, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Smallest over dimensions. `torch.amin`."""
    return ops.Neg(ops.ReduceMax(ops.Neg(x), _axes(dim), keepdims=int(keepdim)))


def argmax(x: Any, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """int64 position of the largest; of the flattened tensor when `dim` is None. `torch.argmax`."""
    if dim is None:
        return ops.ArgMax(reshape(x, -1), axis=0, keepdims=0)
    return ops.ArgMax(x, axis=dim, keepdims=int(keepdim))


def argmin(x: Any, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """int64 position of the smallest. `torch.argmin`."""
    return argmax(ops.Neg(x), dim, keepdim)


def _extreme(position: Any, largest: bool) -> Any:
    def function(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if hasattr(dim, "node"):
            return (maximum if largest else minimum)(x, dim)
        if dim is None:
            return amax(x) if largest else amin(x)
        from ox.results import ValuesIndices

        indices = position(x, dim, True)
        values = ops.GatherElements(x, indices, axis=dim)
        if not keepdim:
            values, indices = squeeze(values, dim), squeeze(indices, dim)
        return ValuesIndices(values, indices)

    function.__doc__ = (
        f"The {'largest' if largest else 'smallest'} of all, of two tensors, or with `dim` a pair (values, indices)."
    )
    return function


max, min = _extreme(argmax, True), _extreme(argmin, False)


def var(x: Any, dim: Dims = None, correction: int = 1, keepdim: bool = False) -> Tensor:
    """Variance; divides by the count less `correction`. `torch.var`."""
    centred = ops.Sub(x, mean(x, dim, True))
    total = sum(ops.Mul(centred, centred), dim, keepdim)
    sizes = x.shape if dim is None else [x.shape[d] for d in ([dim] if isinstance(dim, int) else dim)]
    count: Any = 1
    for size in sizes:
        count = count * size
    return div(total, count - correction)


def std(x: Any, dim: Dims = None, correction: int = 1, keepdim: bool = False) -> Tensor:
    """Standard deviation. `torch.std`."""
    return ops.Sqrt(var(x, dim, correction, keepdim))


def norm(x: Any, p: float = 2, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The p-norm over dimensions (p = 1, 2, inf or any positive number)."""
    if p == 2:
        return ops.Sqrt(sum(ops.Mul(x, x), dim, keepdim))
    if p == 1:
        return sum(ops.Abs(x), dim, keepdim)
    if p == float("inf"):
        return amax(ops.Abs(x), dim, keepdim)
    return pow(sum(pow(ops.Abs(x), p), dim, keepdim), 1 / p)


def all(x: Any, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether every element is true."""
    return ops.Not(any(ops.Not(cast(x, bool_)), dim, keepdim))


def any(x: Any, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether some element is true."""
    return cast(sum(cast(cast(x, bool_), int64), dim, keepdim), bool_)


def softmax(x: Any, dim: int = -1) -> Tensor:
    """Softmax along one dimension. ONNX Softmax."""
    return ops.Softmax(x, axis=dim)


def log_softmax(x: Any, dim: int = -1) -> Tensor:
    """Logarithm of softmax along one dimension. ONNX LogSoftmax."""
    return ops.LogSoftmax(x, axis=dim)
