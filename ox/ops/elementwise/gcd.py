"""The greatest common divisor of whole numbers: Gcd."""

from ox.core.constants import constant
from ox.core.function import function
from ox.core.types import XP, Array, T
from ox.dtypes import int32, int64
from ox.ops.elementwise.arithmetic import Abs, Mod
from ox.ops.elementwise.comparison import Equal, Where

__all__ = ["Gcd"]

STEPS = {4: 46, 8: 91}  # Fibonacci's numbers take longest; a further pair does not fit


@function("C", kind="pointwise", T=(int32, int64))
def Gcd(A: T, B: T) -> T:
    """The greatest common divisor, with NumPy broadcasting; not negative. The body takes Euclid's steps."""
    zero, one = constant(0, A), constant(1, A)
    a, b = Abs(A), Abs(B)
    for _ in range(STEPS[A.array.dtype.itemsize]):
        done = Equal(b, zero)
        a, b = Where(done, a, b), Where(done, zero, Mod(a, Where(done, one, b)))
    return a


@Gcd.fast
def _(xp: XP, A: Array, B: Array) -> Array:
    return xp.gcd(A, B)
