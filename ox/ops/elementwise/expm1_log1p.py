"""Functions exact near 0, where the plain formula loses its digits: Expm1 Log1p."""

import numpy as np

from ox.core.constants import constant
from ox.core.function import function
from ox.core.tensor import TensorBase
from ox.core.types import XP, Array, T
from ox.core.upcast import in_float32
from ox.dtypes import FLOATS
from ox.ops.elementwise.activation import Tanh
from ox.ops.elementwise.arithmetic import Abs, Add, Div, Exp, Log, Max, Min, Mul, Sub
from ox.ops.elementwise.comparison import Less, Where
from ox.ops.elementwise.trigonometry import Atanh

__all__ = ["Expm1", "Log1p"]


@function("Y", kind="pointwise", T=FLOATS, amp="float32")
def Expm1(X: T) -> T:
    """exp(X) - 1; the body takes 2t / (1 - t) with t = tanh(X / 2) near 0."""
    one = constant(1, X)
    t = Tanh(Mul(Max(Min(X, one), constant(-1, X)), constant(0.5, X)))
    return Where(Less(Abs(X), one), Div(Add(t, t), Sub(one, t)), Sub(Exp(X), one))


@Expm1.fast
@in_float32
def Expm1_fast(xp: XP, X: Array) -> Array:
    with np.errstate(all="ignore"):
        return xp.expm1(X)


@Expm1.gradient("X")
def _(g: TensorBase, Y: TensorBase) -> TensorBase:
    return Mul(g, Add(Y, constant(1, g)))


@function("Y", kind="pointwise", T=FLOATS, amp="float32")
def Log1p(X: T) -> T:
    """log(1 + X); the body takes 2 atanh(X / (2 + X)) near 0."""
    half = constant(0.5, X)
    near = Max(Min(X, half), constant(-0.5, X))
    t = Atanh(Div(near, Add(near, constant(2, X))))
    return Where(Less(Abs(X), half), Add(t, t), Log(Add(X, constant(1, X))))


@Log1p.fast
@in_float32
def Log1p_fast(xp: XP, X: Array) -> Array:
    with np.errstate(all="ignore"):
        return xp.log1p(X)


@Log1p.gradient("X")
def _(g: TensorBase, X: TensorBase) -> TensorBase:
    return Div(g, Add(X, constant(1, g)))
