"""Whole numbers nearby: Floor Ceil Round. Their gradients are 0."""

from typing import TYPE_CHECKING

from ox.dtypes import FLOATS
from ox.ops.comparison import nothing
from ox.ops.operator import operator
from ox.ops.types import XP, T

if TYPE_CHECKING:
    from ox.tensor import Tensor


@operator("Y", T=FLOATS)
def Floor(xp: XP, X: T) -> T:
    """The greatest whole number that is not above. ONNX Floor."""
    return xp.floor(X)


@operator("Y", T=FLOATS)
def Ceil(xp: XP, X: T) -> T:
    """The smallest whole number that is not below. ONNX Ceil."""
    return xp.ceil(X)


@operator("Y", T=FLOATS)
def Round(xp: XP, X: T) -> T:
    """The nearest whole number, the even one of two. ONNX Round."""
    return xp.rint(X)


@Floor.gradient("X")
@Ceil.gradient("X")
@Round.gradient("X")
def _(g: "Tensor") -> "Tensor":
    return nothing(g)
