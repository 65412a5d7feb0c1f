"""NumPy's scalars, arrays and element types in a pickle: numbers only."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ox.dtypes import ALL, bfloat16
from ox.serialization.torch_checkpoint.errors import Budget, UnreadableError
from ox.serialization.torch_checkpoint.unpickler import Built

_COMPLEX = (np.dtype(np.complex64), np.dtype(np.complex128))
_NUMBERS = {dtype.str[1:]: dtype for dtype in (*ALL, *_COMPLEX) if dtype != bfloat16}
_LONGEST_TEXT = 1 << 20  # characters

# the scalar types by name, as values: never called
TYPES = {f"numpy.{dtype.type.__name__}": dtype.type for dtype in _NUMBERS.values()}


class Kind(Built):
    """`numpy.dtype`: a code, and by a later instruction its byte order."""

    def __init__(self, budget: Budget, code: Any, align: Any = False, copy: Any = True) -> None:
        self.dtype = self.stored = _NUMBERS[code] if code in _NUMBERS else _text(code)

    def build(self, state: Any, budget: Budget) -> None:
        order = state[1] if isinstance(state, tuple) and len(state) > 1 else None
        if order not in ("<", ">", "=", "|"):
            raise UnreadableError("an element type of NumPy with fields")
        self.stored = self.dtype.newbyteorder(">") if order == ">" else self.dtype

    def read(self, raw: Any, shape: tuple[int, ...], budget: Budget) -> Any:
        if not isinstance(raw, bytes | bytearray) or prod(shape) * self.dtype.itemsize != len(raw):
            raise UnreadableError("an array of NumPy whose bytes do not fit its shape")
        budget.take(2 * len(raw))
        if self.dtype == np.bool_:
            return (np.frombuffer(raw, np.uint8) != 0).reshape(shape)
        return np.frombuffer(raw, self.stored).astype(self.dtype).reshape(shape)


def _text(code: Any) -> Any:
    """Strings or bytes of one length: ``U7``, ``S3``."""
    kind, length = (code[:1], code[1:]) if type(code) is str else ("", "")
    if kind not in ("U", "S") or not (length.isascii() and length.isdigit() and len(length) < 8):
        raise UnreadableError(
            f"NumPy's values of type {str(code)[:100]!r}",
            expected="numbers, bools and text",
            hint="where it was saved: value.tolist()",
        )
    if not 0 < int(length) <= _LONGEST_TEXT:
        raise UnreadableError(f"NumPy's text of length {length}")
    return np.dtype(f"{kind}{int(length)}")


class Array(Built):
    """`numpy.ndarray`: made empty, and by a later instruction filled."""

    array: Any = None

    def __init__(self, budget: Budget, kind: Any = None, shape: Any = None, code: Any = None) -> None:
        pass

    def build(self, state: Any, budget: Budget) -> None:
        if not isinstance(state, tuple) or len(state) != 5 or not isinstance(state[2], Kind):
            raise UnreadableError("an array of NumPy that is none")
        _, shape, kind, fortran, raw = state
        self.fill(raw, kind, shape, fortran, budget)

    def fill(self, raw: Any, kind: Kind, shape: Any, fortran: Any, budget: Budget) -> None:
        if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape) or len(shape) > 64:
            raise UnreadableError("an array of NumPy with sizes that are no numbers")
        self.array = kind.read(raw, shape[::-1] if fortran else shape, budget)
        if fortran:
            self.array = self.array.T


def frombuffer(budget: Budget, raw: Any, kind: Any, shape: Any, order: Any) -> Array:
    """`numpy.core.numeric._frombuffer`, which protocol 5 uses."""
    if not isinstance(kind, Kind):
        raise UnreadableError("an array of NumPy without an element type")
    made = Array(budget)
    made.fill(raw, kind, shape, order == "F", budget)
    return made


def scalar(budget: Budget, kind: Any, raw: Any) -> Any:
    """`numpy.core.multiarray.scalar`."""
    if not isinstance(kind, Kind):
        raise UnreadableError("a scalar of NumPy without an element type")
    return kind.read(raw, (), budget)[()]
