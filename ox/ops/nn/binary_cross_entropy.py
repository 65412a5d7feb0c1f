"""BinaryCrossEntropy, a function of the domain ``ox``, because of its gradient at 0 and 1."""

from ox.core.constants import constant
from ox.core.function import function
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import T
from ox.dtypes import FLOATS
from ox.ops.elementwise.arithmetic import Add, Div, Log, Max, Mul, Neg, Sub
from ox.ops.elementwise.comparison import LessOrEqual, Where

__all__ = ["BinaryCrossEntropy"]


@function("Y", kind="loss", T=FLOATS, amp="float32", batching="each")
def BinaryCrossEntropy(X: T, target: T) -> T:
    """-(target·log X + (1 - target)·log(1 - X)), each logarithm at least -100; equal shapes."""
    one = constant(1, X)
    return Neg(Add(Mul(target, _log(X)), Mul(Sub(one, target), _log(Sub(one, X)))))


def _log(x: TensorType) -> TensorType:
    """The logarithm, at least -100, and without an infinity on the way."""
    zero, lowest = constant(0, x), constant(-100, x)
    none = LessOrEqual(x, zero)
    return Where(none, lowest, Max(Log(Where(none, constant(1, x), x)), lowest))


@BinaryCrossEntropy.gradient("X", "target")
def _(
    g: TensorBase, X: TensorBase, target: TensorBase, needs: tuple[bool, bool]
) -> tuple[TensorBase | None, TensorBase | None]:
    one = constant(1, X)
    other = Sub(one, X)
    to_x = to_target = None
    if needs[0]:
        # finite at 0 and 1 as in PyTorch, so that the zero slope of a saturated sigmoid before it makes a zero of it
        smallest = constant(1e-12 if X.dtype.itemsize > 2 else 6e-8, X)
        to_x = Mul(g, Div(Sub(X, target), Max(Mul(X, other), smallest)))
    if needs[1]:
        to_target = Mul(g, Sub(_log(other), _log(X)))
    return to_x, to_target
