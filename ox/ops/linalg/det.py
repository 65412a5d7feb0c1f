"""Determinants: Det."""

import numpy as np

from ox.core.broadcast import reshape_to
from ox.core.constants import axes_tensor
from ox.core.operator import OPS, operator
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import XP, T
from ox.core.upcast import in_float32
from ox.dtypes import FLOATS
from ox.errors import ShapeError
from ox.ops.index.gather import Gather

__all__ = ["Det"]


@operator("Y", kind="factorization", T=FLOATS, amp="float32", batching="each")
@in_float32
def Det(xp: XP, X: T) -> T:
    """The determinant of every square matrix [..., n, n]. ONNX Det.

    The gradient is the matrix of cofactors, itself made of determinants: right for singular matrices too, but of
    n² matrices of n - 1 rows, so meant for small n.
    """
    if X.ndim < 2 or X.shape[-1] != X.shape[-2]:
        raise ShapeError("Det takes square matrices", expected="[..., n, n]", got=str(list(X.shape)))
    return xp.asarray(xp.linalg.det(X), X.dtype)


@Det.gradient("X")
def _(g: TensorBase, X: TensorBase) -> TensorBase:
    n = int(X.static_shape[-1])
    g = OPS["Unsqueeze"](g, axes_tensor([-1, -2]))
    if n == 1:
        return g
    if n == 2:
        # [[d, -c], [-b, a]]
        turned = Gather(Gather(X, axes_tensor([1, 0]), axis=-1), axes_tensor([1, 0]), axis=-2)
        signs = np.array([[1, -1], [-1, 1]])
        return OPS["Mul"](OPS["Mul"](g, turned), _as(signs, X))
    others = np.array([[i for i in range(n) if i != left] for left in range(n)])
    rank = X.ndim
    # [..., row left out, n - 1, column left out, n - 1]
    minors = Gather(Gather(X, others.astype(np.int64), axis=-1), others.astype(np.int64), axis=-3)
    lead = list(range(rank - 2))
    order = [rank - 2, rank, rank - 1, rank + 1]
    minors = OPS["Transpose"](minors, perm=[*lead, *order])
    flat = reshape_to(minors, [-1, n - 1, n - 1]) if rank > 2 else minors
    signs = (-1.0) ** np.add.outer(np.arange(n), np.arange(n))
    cofactors = OPS["Mul"](reshape_to(Det(flat), X.shape), _as(signs, X))
    return OPS["Mul"](g, cofactors)


def _as(signs: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]", x: TensorType) -> TensorType:
    from ox.core import operator
    from ox.core.constants import on_device_of

    return on_device_of(operator.as_input(signs.astype(x.array.dtype)), x)
