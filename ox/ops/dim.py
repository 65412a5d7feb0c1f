"""A size under a recording: an int that knows the operators which compute it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.ops import operator
from ox.ops.operator import OPS

if TYPE_CHECKING:
    from ox.tensor import Tensor


class Dim(int):
    """An `int` with the value of this run, which carries the tensor that computes it in every run.

    `+ - * // %` with ints and other Dims give Dims. Comparing or branching uses the value of this run; export records
    at two batch sizes and compares, so a size that leaked into a constant is found.
    """

    _make: Callable[[], Tensor]
    _tensor: Tensor | None

    def __new__(cls, value: int, make: Callable[[], Tensor]) -> Dim:
        self = super().__new__(cls, value)
        self._make, self._tensor = make, None
        return self

    @property
    def tensor(self) -> Tensor:
        """int64 tensor of shape [1]; recorded when first asked for, and anew where that was inside a branch or loop."""
        made = self._tensor
        if made is None or (made._recorded is not None and not made._recorded.active()):
            made = self._tensor = self._make()
        return made

    def __add__(self, other: Any) -> Any:
        return _combine(int.__add__, OPS["Add"], self, other)

    def __sub__(self, other: Any) -> Any:
        return _combine(int.__sub__, OPS["Sub"], self, other)

    def __mul__(self, other: Any) -> Any:
        return _combine(int.__mul__, OPS["Mul"], self, other)

    def __floordiv__(self, other: Any) -> Any:
        return _combine(int.__floordiv__, _floor(self, other), self, other)

    def __rsub__(self, other: Any) -> Any:
        return _combine(lambda a, b: int.__sub__(b, a), lambda a, b: OPS["Sub"](b, a), self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _combine(lambda a, b: int.__floordiv__(b, a), lambda a, b: _floor(other, self)(b, a), self, other)

    def __mod__(self, other: Any) -> Any:
        return _combine(int.__mod__, OPS["Mod"], self, other)

    def __rmod__(self, other: Any) -> Any:
        return _combine(lambda a, b: int.__mod__(b, a), lambda a, b: OPS["Mod"](b, a), self, other)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __neg__(self) -> Any:
        return 0 - self

    __radd__, __rmul__ = __add__, __mul__


def _floor(a: Any, b: Any) -> Callable[[Any, Any], Tensor]:
    """The operators of ``a // b``. ONNX Div drops the fraction, which rounds up where one of them is negative, as in
    ``-(-n // 2)``; Mod has the sign of the divisor, as Python's has."""
    if isinstance(a, int) and isinstance(b, int) and (a < 0) == (b < 0):
        return OPS["Div"]
    return lambda a, b: OPS["Div"](OPS["Sub"](a, OPS["Mod"](a, b)), b)


def _combine(value: Callable[[int, int], Any], op: Callable[[Any, Any], Tensor], a: Dim, b: Any) -> Any:
    if isinstance(b, (int, np.integer)) and not isinstance(b, bool):
        return Dim(value(int(a), int(b)), lambda: op(a.tensor, size_tensor([b if isinstance(b, Dim) else int(b)])))
    return NotImplemented


def size_tensor(sizes: Iterable[int]) -> Tensor:
    """int64 [n] from ints and Dims: a constant where all are plain, else the operators that compute it."""
    sizes = list(sizes)
    if not any(isinstance(size, Dim) for size in sizes):
        return operator.as_input(np.array(sizes, np.int64))
    parts = [s.tensor if isinstance(s, Dim) else operator.as_input(np.array([s], np.int64)) for s in sizes]
    return parts[0] if len(parts) == 1 else OPS["Concat"](*parts, axis=0)


def sizes_of(host: Tensor) -> list[int]:
    """The elements of a host input (sizes, pads, starts): ints, or Dims where they were computed in a recording."""
    values = [int(v) for v in host.array.ravel()]
    if host._recorded is None:
        return values

    def element(i: int) -> Callable[[], Tensor]:
        def make() -> Tensor:
            picked = OPS["Gather"](host, operator.as_input(np.array([i], np.int64)))
            return picked if host.array.dtype == np.int64 else OPS["Cast"](picked, to=7)

        return make

    return [Dim(value, element(i)) for i, value in enumerate(values)]
