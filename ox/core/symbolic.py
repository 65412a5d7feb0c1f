"""A size under a recording: an int with the operators that compute it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import mul
from typing import Any

import numpy as np

from ox.core import operator
from ox.core.operator import OPS
from ox.core.tensor import TensorBase


class Dim(int):
    """An `int` with the value of this run, which carries the tensor that computes it in every run.

    `+ - * // %`, `divmod`, `abs` and small powers with ints and other Dims give Dims, `/` a `Quotient`, of
    which `math.floor` and `math.ceil` give Dims again; Python's `int()` gives a plain number. Comparing or branching
    uses the value of this run; export records at two batch sizes and compares, so a size that leaked into a constant
    is found.
    """

    _make: Callable[[], TensorBase]
    _tensor: TensorBase | None
    natural: bool  # never below 0 in any run

    def __new__(cls, value: int, make: Callable[[], TensorBase], natural: bool = True) -> Dim:
        self = super().__new__(cls, value)
        self._make, self._tensor, self.natural = make, None, natural
        return self

    @property
    def tensor(self) -> TensorBase:
        """int64 tensor of shape [1]; recorded at its first use, and again if that was inside a branch or loop."""
        made = self._tensor
        if made is None or (made._recorded is not None and not made._recorded.active()):
            made = self._tensor = self._make()
        return made

    def __add__(self, other: Any) -> Any:
        return _combine(int.__add__, OPS["Add"], self, other)

    def __sub__(self, other: Any) -> Any:
        return _combine(int.__sub__, OPS["Sub"], self, other, natural=False)

    def __mul__(self, other: Any) -> Any:
        return _combine(int.__mul__, OPS["Mul"], self, other)

    def __floordiv__(self, other: Any) -> Any:
        return _combine(int.__floordiv__, _divide(self, other), self, other)

    def __mod__(self, other: Any) -> Any:
        return _combine(int.__mod__, OPS["Mod"], self, other)

    def __divmod__(self, other: Any) -> Any:
        return (self // other, self % other) if _is_whole(other) else NotImplemented

    def __truediv__(self, other: Any) -> Any:
        return _quotient(self, other)

    def __rsub__(self, other: Any) -> Any:
        return _combine(lambda a, b: int.__sub__(b, a), lambda a, b: OPS["Sub"](b, a), self, other, natural=False)

    def __rfloordiv__(self, other: Any) -> Any:
        divide = _divide(other, self)
        return _combine(lambda a, b: int.__floordiv__(b, a), lambda a, b: divide(b, a), self, other)

    def __rmod__(self, other: Any) -> Any:
        return _combine(lambda a, b: int.__mod__(b, a), lambda a, b: OPS["Mod"](b, a), self, other)

    def __rdivmod__(self, other: Any) -> Any:
        return (other // self, other % self) if _is_whole(other) else NotImplemented

    def __rtruediv__(self, other: Any) -> Any:
        return _quotient(other, self)

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        if type(other) is int and 1 <= other <= _LARGEST_POWER and modulus is None:
            return reduce(mul, [self] * other)
        return int.__pow__(self, other, modulus)

    def __abs__(self) -> Any:
        return Dim(abs(int(self)), lambda: OPS["Abs"](self.tensor))

    def __neg__(self) -> Any:
        return 0 - self

    def __pos__(self) -> Any:
        return self

    __radd__, __rmul__ = __add__, __mul__
    __floor__ = __ceil__ = __trunc__ = __pos__


class Quotient(float):
    """A size divided by another: a `float` with the value of this run, and the two sizes. `/` and `*` keep it, and
    `math.floor`, `math.ceil` and `math.trunc` give a Dim."""

    above: Any
    below: Any

    def __new__(cls, above: Any, below: Any) -> Quotient:
        self = super().__new__(cls, int(above) / int(below))
        self.above, self.below = above, below
        return self

    def __truediv__(self, other: Any) -> Any:
        return _quotient(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _quotient(other, self)

    def __mul__(self, other: Any) -> Any:
        parts = _parts(other)
        return NotImplemented if parts is None else Quotient(self.above * parts[0], self.below * parts[1])

    __rmul__ = __mul__

    def __floor__(self) -> Any:
        return self.above // self.below

    def __ceil__(self) -> Any:
        return -(-self.above // self.below)

    def __trunc__(self) -> Any:
        return self.__floor__() if self >= 0 else self.__ceil__()


_LARGEST_POWER = 4


def _quotient(above: Any, below: Any) -> Any:
    """NotImplemented where one of them is no size: Python then divides floats."""
    first, second = _parts(above), _parts(below)
    if first is None or second is None:
        return float(above) / float(below) if isinstance(above, float) and isinstance(below, float) else NotImplemented
    return Quotient(first[0] * second[1], first[1] * second[0])


def _parts(value: Any) -> tuple[Any, Any] | None:
    """What is above and below the line in a whole number or a quotient of such; None for anything else."""
    if isinstance(value, Quotient):
        return value.above, value.below
    if _is_whole(value):
        return value, 1
    return (int(value), 1) if isinstance(value, float) and value.is_integer() else None


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _is_natural(value: Any) -> bool:
    return value.natural if isinstance(value, Dim) else bool(value >= 0)


def _divide(a: Any, b: Any) -> Callable[[Any, Any], TensorBase]:
    """Division rounded down: Div rounds towards 0, which is the same from 0 on."""
    if not _is_whole(b) or not _is_whole(a) or (_is_natural(a) and _is_natural(b)):
        return OPS["Div"]
    return lambda x, y: OPS["Div"](OPS["Sub"](x, OPS["Mod"](x, y)), y)


def _combine(
    value: Callable[[int, int], Any], op: Callable[[Any, Any], TensorBase], a: Dim, b: Any, natural: bool = True
) -> Any:
    if not _is_whole(b):
        return NotImplemented
    natural = natural and a.natural and _is_natural(b)
    made = value(int(a), int(b))
    return Dim(made, lambda: op(a.tensor, size_tensor([b if isinstance(b, Dim) else int(b)])), natural)


FIXED: dict[tuple[int, ...], Any] = {}  # tensors of axes and fixed shapes, which calls share
MOST_FIXED = 1024


def ints(*values: int) -> Any:
    """int64 [n]: axes, a fixed shape. Shared, so read-only."""
    made = FIXED.get(values)
    if made is None:
        if len(FIXED) >= MOST_FIXED:
            FIXED.clear()
        made = FIXED[values] = operator.as_input(np.array(values, np.int64))
        made.array.flags.writeable = False
    return made


def size_tensor(sizes: Iterable[int]) -> Any:
    """int64 [n] from ints and Dims: a constant where all are plain, else the operators that compute it."""
    sizes = tuple(sizes)
    if Dim not in map(type, sizes):
        return ints(*sizes)
    parts = [s.tensor if isinstance(s, Dim) else operator.as_input(np.array([s], np.int64)) for s in sizes]
    return parts[0] if len(parts) == 1 else OPS["Concat"](*parts, axis=0)


def sizes_of(host: TensorBase) -> list[int]:
    """The elements of a host input (sizes, pads, starts): ints, or Dims where they were computed in a recording."""
    values = [int(v) for v in host.array.ravel()]
    if host._recorded is None:
        return values

    def element(i: int) -> Callable[[], TensorBase]:
        def make() -> TensorBase:
            picked = OPS["Gather"](host, operator.as_input(np.array([i], np.int64)))
            return picked if host.array.dtype == np.int64 else OPS["Cast"](picked, to=7)

        return make

    return [Dim(value, element(i), natural=False) for i, value in enumerate(values)]
