"""A size under a recording: an int with the operators that compute it, and how it follows from the sizes of inputs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import reduce
from operator import mul
from typing import Any

import numpy as np

from ox.call_site import is_ox, is_users_file
from ox.core import operator
from ox.core.constant_sizes import ints
from ox.core.declared_size import DeclaredSize, SizeHint
from ox.core.mode import MODE
from ox.core.operator import OPS
from ox.core.size_expression import OPPOSITE, Expression, combined, leaves
from ox.core.tensor import TensorBase


class Dim(int):
    """A size that may vary.

    ``Dim("h", min=32, max=2048, multiple_of=32)`` declares one for `ox.export.save`: `DeclaredSize`.

    In a recording it is an `int` with the value of this run, which carries the tensor that computes it in every run.
    `+ - * // %`, `divmod`, `abs` and small powers with ints and other Dims give Dims, `/` a `Quotient`, of
    which `math.floor` and `math.ceil` give Dims again, and a fractional power a `Root`; Python's `int()` gives a plain
    number. A comparison in the user's code uses the value of this run, and the recording takes note of it: what is
    recorded holds at the sizes for which it turns out the same.
    """

    _make: Callable[[], TensorBase]
    _tensor: TensorBase | None
    AUTO = DYNAMIC = SizeHint.DYNAMIC
    STATIC = SizeHint.STATIC
    natural: bool  # never below 0 in any run
    expression: Expression  # None: not known

    def __new__(
        cls,
        value: Any,
        make: Callable[[], TensorBase] | None = None,
        natural: bool = True,
        expression: Expression = None,
        **limits: int | None,
    ) -> Dim:
        if isinstance(value, str):
            return DeclaredSize(value, **limits)  # type: ignore[return-value,arg-type]
        assert make is not None
        self = super().__new__(cls, value)
        self._make, self._tensor, self.natural, self.expression = make, None, natural, expression
        return self

    @property
    def tensor(self) -> TensorBase:
        """int64 tensor of shape [1]; recorded at its first use, and again if that was inside a branch or loop."""
        made = self._tensor
        if made is None or (made._recorded is not None and not made._recorded.active()):
            made = self._tensor = self._make()
        return made

    def __add__(self, other: Any) -> Any:
        return _combine("+", int.__add__, OPS["Add"], self, other)

    def __sub__(self, other: Any) -> Any:
        return _combine("-", int.__sub__, OPS["Sub"], self, other, natural=False)

    def __mul__(self, other: Any) -> Any:
        return _combine("*", int.__mul__, OPS["Mul"], self, other)

    def __floordiv__(self, other: Any) -> Any:
        return _combine("//", int.__floordiv__, _divide(self, other), self, other)

    def __mod__(self, other: Any) -> Any:
        return _combine("%", int.__mod__, OPS["Mod"], self, other)

    def __divmod__(self, other: Any) -> Any:
        return (self // other, self % other) if _is_whole(other) else NotImplemented

    def __truediv__(self, other: Any) -> Any:
        made = _quotient(self, other)
        if made is NotImplemented and isinstance(other, float):
            note_lost_size(self)
        return made

    def __rsub__(self, other: Any) -> Any:
        return _combine("-", int.__sub__, OPS["Sub"], self, other, natural=False, turned=True)

    def __rfloordiv__(self, other: Any) -> Any:
        return _combine("//", int.__floordiv__, _divide(other, self), self, other, turned=True)

    def __rmod__(self, other: Any) -> Any:
        return _combine("%", int.__mod__, OPS["Mod"], self, other, turned=True)

    def __rdivmod__(self, other: Any) -> Any:
        return (other // self, other % self) if _is_whole(other) else NotImplemented

    def __rtruediv__(self, other: Any) -> Any:
        made = _quotient(other, self)
        if made is NotImplemented and isinstance(other, float):
            note_lost_size(self)
        return made

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        if type(other) is int and 1 <= other <= _LARGEST_POWER and modulus is None:
            return reduce(mul, [self] * other)
        if isinstance(other, float) and modulus is None:
            return Root(self, other)
        note_lost_size(self)
        return int.__pow__(self, other, modulus)

    def __abs__(self) -> Any:
        square = combined("*", self.expression, self.expression)
        return Dim(abs(int(self)), lambda: OPS["Abs"](self.tensor), expression=combined("**", square, 0.5))

    def __neg__(self) -> Any:
        return 0 - self

    def __pos__(self) -> Any:
        return self

    __radd__, __rmul__ = __add__, __mul__
    __floor__ = __ceil__ = __trunc__ = __pos__

    def __eq__(self, other: object) -> Any:
        return _compare("==", int.__eq__(self, other), self, other)

    def __ne__(self, other: object) -> Any:
        return _compare("!=", int.__ne__(self, other), self, other)

    def __lt__(self, other: int) -> Any:
        return _compare("<", int.__lt__(self, other), self, other)

    def __le__(self, other: int) -> Any:
        return _compare("<=", int.__le__(self, other), self, other)

    def __gt__(self, other: int) -> Any:
        return _compare(">", int.__gt__(self, other), self, other)

    def __ge__(self, other: int) -> Any:
        return _compare(">=", int.__ge__(self, other), self, other)

    def __bool__(self) -> bool:
        return bool(_compare("!=", int.__ne__(self, 0), self, 0))


class Compared(float):
    """A `float` computed from sizes, of whose comparisons the recording takes note, too."""

    def __eq__(self, other: object) -> Any:
        return _compare("==", float.__eq__(self, other), self, other)

    def __ne__(self, other: object) -> Any:
        return _compare("!=", float.__ne__(self, other), self, other)

    def __lt__(self, other: float) -> Any:
        return _compare("<", float.__lt__(self, other), self, other)

    def __le__(self, other: float) -> Any:
        return _compare("<=", float.__le__(self, other), self, other)

    def __gt__(self, other: float) -> Any:
        return _compare(">", float.__gt__(self, other), self, other)

    def __ge__(self, other: float) -> Any:
        return _compare(">=", float.__ge__(self, other), self, other)


class Quotient(Compared):
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
        return self.__floor__() if float(self) >= 0 else self.__ceil__()


class Root(Compared):
    """A size to a fractional power: a `float` with the value of this run. Times or divided by numbers it stays one."""

    size: Dim
    exponent: float
    factor: float

    def __new__(cls, size: Dim, exponent: float, factor: float = 1.0) -> Root:
        self = super().__new__(cls, factor * int(size) ** exponent)
        self.size, self.exponent, self.factor = size, exponent, factor
        return self

    @property
    def expression(self) -> Expression:
        power = combined("**", self.size.expression, self.exponent)
        return power if self.factor == 1 else combined("*", self.factor, power)

    def __mul__(self, other: Any) -> Any:
        if _is_number(other):
            return Root(self.size, self.exponent, self.factor * other)
        return float(self) * float(other) if isinstance(other, (int, float)) else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        if _is_number(other):
            return Root(self.size, self.exponent, self.factor / other)
        return float(self) / float(other) if isinstance(other, (int, float)) else NotImplemented

    def __rtruediv__(self, other: Any) -> Any:
        if _is_number(other):
            return Root(self.size, -self.exponent, other / self.factor)
        return float(other) / float(self) if isinstance(other, (int, float)) else NotImplemented


COMPUTED = (Dim, Quotient, Root)  # numbers that a recording computes anew in every run
_LARGEST_POWER = 4


def contains_sizes(data: Any) -> bool:
    """Whether there is such a number in lists of lists."""
    return any(map(contains_sizes, data)) if isinstance(data, (list, tuple)) else isinstance(data, COMPUTED)


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


def _is_number(value: Any) -> bool:
    """A number of the code, which no recording changes."""
    return type(value) in (int, float) or isinstance(value, np.number)


def _is_natural(value: Any) -> bool:
    return value.natural if isinstance(value, Dim) else bool(value >= 0)


def _divide(a: Any, b: Any) -> Callable[[Any, Any], TensorBase]:
    """Division rounded down: Div rounds towards 0, which is the same from 0 on."""
    if not _is_whole(b) or not _is_whole(a) or (_is_natural(a) and _is_natural(b)):
        return OPS["Div"]
    return lambda x, y: OPS["Div"](OPS["Sub"](x, OPS["Mod"](x, y)), y)


def _combine(
    sign: str,
    value: Callable[[int, int], Any],
    op: Callable[[Any, Any], TensorBase],
    a: Dim,
    b: Any,
    natural: bool = True,
    turned: bool = False,
) -> Any:
    """`a` and `b` combined; `turned`: the other way round."""
    if not _is_whole(b):
        if isinstance(b, float):  # Python makes a float of both, of which nothing is known
            note_lost_size(a, above=3)
        return NotImplemented
    natural = natural and a.natural and _is_natural(b)
    first, second = (b, a) if turned else (a, b)
    return Dim(
        value(int(first), int(second)),
        lambda: op(_as_tensor(first), _as_tensor(second)),
        natural,
        combined(sign, expression_of(first), expression_of(second)),
    )


def _as_tensor(size: Any) -> Any:
    return size.tensor if isinstance(size, Dim) else size_tensor([int(size)])


def expression_of(size: Any) -> Expression:
    """How a size, a quotient of sizes or a number is computed; None where that is not known."""
    if isinstance(size, (Dim, Root)):
        return size.expression
    if isinstance(size, Quotient):
        return combined("/", expression_of(size.above), expression_of(size.below))
    return float(size) if isinstance(size, float) else int(size)


def _compare(sign: str, outcome: Any, a: Any, b: Any) -> Any:
    """The outcome of a comparison, of which the recording takes note where the user's code made it: ox's own code
    compares sizes to find errors and shortcuts, which change nothing in the result."""
    recording: Any = MODE.get().recording
    if outcome is not NotImplemented and recording is not None and not is_ox(sys._getframe(2).f_code.co_filename):
        test = combined(sign if outcome else OPPOSITE[sign], expression_of(a), expression_of(b))
        recording.on_size_test(test)
    return outcome


def _lost(kind: type, name: str) -> Callable[..., Any]:
    """A method of `int` or `float` whose result is a plain number. The recording takes note where the user's code asked
    for it: a branch may depend on the number, and nobody could tell."""
    method: Callable[..., Any] = getattr(kind, name)

    def plain(self: Any, *others: Any) -> Any:
        note_lost_size(self)
        return method(self, *others)

    plain.__name__ = name
    return plain


def note_lost_size(size: Any, above: int = 2) -> None:
    """For the recording, if the code that called the caller, or is further `above`, is the user's: it has a size as a
    plain number now."""
    recording: Any = MODE.get().recording
    if recording is not None and is_users_file(sys._getframe(above).f_code.co_filename):
        recording.on_size_test(None, expression_of(size) if isinstance(size, COMPUTED) else None)


_BITS = [f"__{side}{name}__" for name in ("and", "or", "xor", "lshift", "rshift") for side in ("", "r")]
_NUMBERS = ("__index__", "__rpow__", "bit_length", "bit_count")
for _name in ("__int__", "__float__", "__hash__", "__round__", "__invert__", *_NUMBERS, *_BITS):
    setattr(Dim, _name, _lost(int, _name))
for _name in ("__int__", "__float__", "__hash__", "__round__"):
    setattr(Compared, _name, _lost(float, _name))


def is_named(size: Any) -> bool:
    """Whether it surely varies: it follows from a named size of an input. Others may be the same each time."""
    return isinstance(size, Dim) and any(isinstance(leaf, str) for leaf in leaves(size.expression))


def assume(sign: str, a: int, b: int) -> None:
    """Take note in the recording of what code of ox relies on, ``assume("!=", size, 1)``: true in this run."""
    recording: Any = MODE.get().recording
    if recording is not None and (isinstance(a, Dim) or isinstance(b, Dim)):
        recording.on_size_test(combined(sign, expression_of(a), expression_of(b)))


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
