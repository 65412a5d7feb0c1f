"""NextAfter, a kernel without a form in operators, which do not look at bits."""

from typing import TYPE_CHECKING

import numpy as np

from ox.dtypes import FLOATS
from ox.ops.broadcast import sum_to
from ox.ops.comparison import Equal, Where
from ox.ops.matrix import factorization
from ox.ops.numeric import constant
from ox.ops.types import XP, T

if TYPE_CHECKING:
    from ox.tensor import Tensor


@factorization("Z", T=FLOATS)
def NextAfter(xp: XP, X: T, Y: T) -> T:
    """The number next to X towards Y."""
    with np.errstate(all="ignore"):
        return xp.nextafter(X, Y)


@NextAfter.gradient("X")
def _(g: "Tensor", X: "Tensor", Y: "Tensor", X_shape: tuple[int, ...]) -> "Tensor":
    return sum_to(Where(Equal(X, Y), constant(0, g), g), X_shape)
