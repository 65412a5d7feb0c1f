"""Functions exact near 0, where the plain formula loses its digits: Expm1 Log1p."""

from typing import TYPE_CHECKING

import numpy as np

from ox.dtypes import FLOATS
from ox.ops.activation import Tanh
from ox.ops.arithmetic import Abs, Add, Div, Exp, Log, Max, Min, Mul, Sub
from ox.ops.comparison import Less, Where
from ox.ops.function import function
from ox.ops.numeric import constant, widened
from ox.ops.trigonometry import Atanh
from ox.ops.types import XP, Array, T

if TYPE_CHECKING:
    from ox.tensor import Tensor


@function("Y", T=FLOATS)
def Expm1(X: T) -> T:
    """exp(X) - 1; the body takes 2t / (1 - t) with t = tanh(X / 2) near 0."""
    one = constant(1, X)
    t = Tanh(Mul(Max(Min(X, one), constant(-1, X)), constant(0.5, X)))
    return Where(Less(Abs(X), one), Div(Add(t, t), Sub(one, t)), Sub(Exp(X), one))


@Expm1.fast
@widened
def _(xp: XP, X: Array) -> Array:
    with np.errstate(all="ignore"):
        return xp.expm1(X)


@Expm1.gradient("X")
def _(g: "Tensor", Y: "Tensor") -> "Tensor":
    return Mul(g, Add(Y, constant(1, g)))


@function("Y", T=FLOATS)
def Log1p(X: T) -> T:
    """log(1 + X); the body takes 2 atanh(X / (2 + X)) near 0."""
    half = constant(0.5, X)
    near = Max(Min(X, half), constant(-0.5, X))
    t = Atanh(Div(near, Add(near, constant(2, X))))
    return Where(Less(Abs(X), half), Add(t, t), Log(Add(X, constant(1, X))))


@Log1p.fast
@widened
def _(xp: XP, X: Array) -> Array:
    with np.errstate(all="ignore"):
        return xp.log1p(X)


@Log1p.gradient("X")
def _(g: "Tensor", X: "Tensor") -> "Tensor":
    return Div(g, Add(X, constant(1, g)))
