"""Whole numbers nearby: Floor Ceil Round. Their gradients are 0."""

from ox.core.operator import operator
from ox.core.tensor import TensorBase
from ox.core.types import XP, T
from ox.dtypes import FLOATS
from ox.ops.elementwise.comparison import nothing

__all__ = ["Ceil", "Floor", "Round"]


@operator("Y", kind="pointwise", T=FLOATS, amp="widest")
def Floor(xp: XP, X: T) -> T:
    """The greatest whole number that is not above. ONNX Floor."""
    return xp.floor(X)


@operator("Y", kind="pointwise", T=FLOATS, amp="widest")
def Ceil(xp: XP, X: T) -> T:
    """The smallest whole number that is not below. ONNX Ceil."""
    return xp.ceil(X)


@operator("Y", kind="pointwise", T=FLOATS, amp="widest")
def Round(xp: XP, X: T) -> T:
    """The nearest whole number, the even one of two. ONNX Round."""
    return xp.rint(X)


@Floor.gradient("X")
@Ceil.gradient("X")
@Round.gradient("X")
def _(g: TensorBase) -> TensorBase:
    return nothing(g)
