"""A layer's product with its weights as ox trains with it: forward and backward are one call each."""

from math import prod
from typing import Any

from ox.core.broadcast import reshape_to
from ox.core.constants import axes_tensor
from ox.core.function import function
from ox.core.operator import OPS
from ox.core.symbolic import size_tensor
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import T
from ox.dtypes import FLOATS
from ox.ops.linalg.matmul import Gemm

__all__ = ["Linear"]


def _rows(x: TensorType) -> TensorType:
    """Two-dimensional, of the same last size."""
    if x.ndim == 2:
        return x
    columns = x.shape[-1]
    count = -1 if columns else prod(x.shape[:-1])  # of rows without elements -1 could be any number
    return OPS["Reshape"](x, size_tensor([count, columns]), allowzero=int(count != -1))


def _sum_of_rows(g: TensorType) -> TensorType:
    return OPS["ReduceSum"](_rows(g), axes_tensor([0]), keepdims=0)


@function("Y", kind="product", fused=True, T=FLOATS, amp="lower")
def Linear(X: T, W: T, b: T = None) -> T:
    """X Wᵀ + b: X [..., in] of two dimensions or more, W [out, in] and b [out]."""
    y = Gemm(_rows(X), W, b, transB=1)
    return y if X.ndim == 2 else reshape_to(y, [*X.shape[:-1], W.shape[0]])


@function("dX dW db", kind="gradient", fused=True, T=FLOATS, amp="lower")
def LinearGradient(g: T, X: T, W: T, *, bias: int = 1) -> tuple[T, T, T]:
    """The gradients of Linear's inputs from a cotangent g [..., out]; without `bias` there is no db."""
    found: Any = (_to_input(g, W), Gemm(_rows(g), _rows(X), transA=1))
    return (*found, _sum_of_rows(g)) if bias else found


def _to_input(g: TensorType, W: TensorType) -> TensorType:
    back = Gemm(_rows(g), W)
    return back if g.ndim == 2 else reshape_to(back, [*g.shape[:-1], W.shape[1]])


# For a layer in the middle of a network one call; where an input needs no gradient, nothing is saved for it.
@Linear.gradient("X", "W", "b", together=True)
def _(g: TensorBase, X: TensorBase, W: TensorBase) -> tuple[TensorBase, ...]:
    return LinearGradient(g, X, W, outputs=3)


@Linear.gradient("X", "W", together=True)
def _(g: TensorBase, X: TensorBase, W: TensorBase) -> tuple[TensorBase, ...]:
    return LinearGradient(g, X, W, outputs=2, bias=0)


@Linear.gradient("X")
def _(g: TensorBase, W: TensorBase) -> TensorBase:
    return _to_input(g, W)


@Linear.gradient("W")
def _(g: TensorBase, X: TensorBase) -> TensorBase:
    return Gemm(_rows(g), _rows(X), transA=1)


@Linear.gradient("b")
def _(g: TensorBase) -> TensorBase:
    return _sum_of_rows(g)
