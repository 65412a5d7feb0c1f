"""NextAfter, a kernel without a form in operators, which do not look at bits."""

import numpy as np

from ox.core.broadcast import sum_to
from ox.core.constants import constant
from ox.core.tensor import TensorBase
from ox.core.types import XP, T
from ox.dtypes import FLOATS
from ox.ops.elementwise.comparison import Equal, Where
from ox.ops.linalg.solve import factorization

__all__ = ["NextAfter"]


@factorization("Z", kind="pointwise", T=FLOATS, amp="widest")
def NextAfter(xp: XP, X: T, Y: T) -> T:
    """The number next to X towards Y."""
    with np.errstate(all="ignore"):
        return xp.nextafter(X, Y)


@NextAfter.gradient("X")
def _(g: TensorBase, X: TensorBase, Y: TensorBase, X_shape: tuple[int, ...]) -> TensorBase:
    return sum_to(Where(Equal(X, Y), constant(0, g), g), X_shape)
