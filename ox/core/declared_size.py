"""A size that varies, as `ox.export.save` is told of it: its name, and the values that it can have."""

from __future__ import annotations

from enum import Enum
from typing import Any

from ox.core.size_expression import Expression, text
from ox.errors import ArgumentError


class SizeHint(Enum):
    """What is said of a size without a name; `Dim.AUTO`, `Dim.DYNAMIC`, `Dim.STATIC`, as in `torch.export`."""

    STATIC = "static"
    DYNAMIC = "dynamic"


class DeclaredSize(str):
    """The name of a size, with its limits: ``ox.Dim("h", min=32, max=2048, multiple_of=32)``. `torch.export.Dim`.

    ``2 * n``, ``n + 1``, ``n - 1`` and ``past + n`` are sizes that follow from others.

    Raises:
        ArgumentError: no name, or limits that leave no size.
    """

    min: int
    max: int | None
    multiple_of: int
    expression: Expression  # a str for a size of its own; a tuple where it follows from others
    bases: tuple[DeclaredSize, ...]  # those, or itself

    def __new__(cls, name: str, min: int | None = None, max: int | None = None, multiple_of: int = 1) -> DeclaredSize:
        self = super().__new__(cls, name)
        low = 1 if min is None else min
        numbers = (low, multiple_of, 1 if max is None else max)
        if not name or not all(type(n) is int and n >= 0 for n in numbers) or multiple_of < 1:
            raise ArgumentError(
                "no size can be declared like this",
                expected="a name, and whole numbers min, max and multiple_of",
                got=f"Dim({name!r}, min={min}, max={max}, multiple_of={multiple_of})",
            )
        if max is not None and max // multiple_of * multiple_of < low:
            raise ArgumentError(f"no size is left for '{name}'", got=f"min={low}, max={max}, multiple_of={multiple_of}")
        self.min, self.max, self.multiple_of, self.expression, self.bases = low, max, multiple_of, str(name), (self,)
        return self

    @classmethod
    def following(cls, name: str, expression: Expression, bases: tuple[DeclaredSize, ...]) -> DeclaredSize:
        """One that follows from others."""
        made = cls(name)
        made.expression, made.bases = expression, bases
        return made

    @property
    def derived(self) -> bool:
        """Whether it follows from others."""
        return isinstance(self.expression, tuple)

    def __add__(self, other: Any) -> Any:
        return str.__add__(self, other) if type(other) is str else _derived(self, "+", other)

    def __sub__(self, other: Any) -> DeclaredSize:
        return _derived(self, "-", other)

    def __mul__(self, other: Any) -> DeclaredSize:
        return _derived(self, "*", other)

    def __floordiv__(self, other: Any) -> DeclaredSize:
        return _derived(self, "//", other)

    __radd__, __rmul__ = __add__, __mul__


def _derived(size: DeclaredSize, sign: str, other: Any) -> Any:
    if type(other) is int:
        expression = (sign, other, size.expression) if sign == "*" else (sign, size.expression, other)
        bases = size.bases
    elif isinstance(other, DeclaredSize):
        expression = sign, size.expression, other.expression
        bases = tuple({str(base): base for base in (*size.bases, *other.bases)}.values())
    else:
        return NotImplemented
    return DeclaredSize.following(text(expression), expression, bases)
