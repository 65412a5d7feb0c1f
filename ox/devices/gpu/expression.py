"""Formulas of elements and numbers as text of a kernel: they run once on expressions, which write down what is done.

An element is a value of each place of an array, computed in the type ``C`` of the kernel. A number is the same for a
whole array: it is computed in double, before, and an element meets it rounded to ``C``, as NumPy does it with numbers
of Python.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

ELEMENT, NUMBER, TRUTH = "C", "double", "bool"


class Trace:
    """The statements that were written so far; it has the names of NumPy that formulas may use."""

    def __init__(self) -> None:
        self.of_numbers: list[str] = []
        self.of_elements: list[str] = []
        self.passed: dict[str, int] = {}  # numbers that elements meet, and their places
        self._count = 0

    def element(self, name: str) -> Expression:
        """An element that the kernel knows by a name."""
        return Expression(self, name, ELEMENT)

    def number(self, name: str) -> Expression:
        """A number that the kernel knows by a name."""
        return Expression(self, name, NUMBER)

    def write(self, template: str, *operands: Any, kind: str | None = None) -> Expression:
        """A statement of operands, which stand for {0}, {1} ... in the template.

        Raises:
            TypeError: an operand that kernels do not have.
        """
        is_element = any(isinstance(x, Expression) and x.has_elements for x in operands)
        text = template.format(*[self._operand(x, is_element) for x in operands])
        self._count += 1
        made = Expression(self, f"t{self._count}", kind or (ELEMENT if is_element else NUMBER), is_element)
        (self.of_elements if is_element else self.of_numbers).append(f"const {made.kind} {made.text} = {text};")
        return made

    def _operand(self, x: Any, with_elements: bool) -> str:
        if isinstance(x, Expression):
            if with_elements and x.kind == NUMBER:
                return f"n{self.passed.setdefault(x.text, len(self.passed))}"
            if with_elements and not x.has_elements and x.kind == TRUTH:
                raise TypeError("a truth of numbers meets elements")
            return x.text
        value = float(x)
        if not isfinite(value):
            raise TypeError(f"{value} in a formula")
        return f"(C){value!r}" if with_elements else f"(double){value!r}"

    def of_element(self, x: Any) -> str:
        """The text of a value as an element. Raises TypeError as `write`."""
        return self._operand(x, True)

    def of_number(self, x: Any) -> str:
        """The text of a value as a number. Raises TypeError as `write`."""
        if isinstance(x, Expression) and x.has_elements:
            raise TypeError("a number of elements")
        return self._operand(x, False)

    def sqrt(self, x: Any) -> Expression:
        return self.write("sqrt({0})", x)

    def abs(self, x: Any) -> Expression:
        return self.write("fabs({0})", x)

    def sign(self, x: Any) -> Expression:
        return self.write("({0} > 0 ? 1 : {0} < 0 ? -1 : {0} == 0 ? 0 : {0})", x)

    def maximum(self, a: Any, b: Any) -> Expression:
        return self.write("({0} > {1} || {0} != {0} ? {0} : {1})", a, b)

    def minimum(self, a: Any, b: Any) -> Expression:
        return self.write("({0} < {1} || {0} != {0} ? {0} : {1})", a, b)

    def where(self, condition: Any, a: Any, b: Any) -> Expression:
        return self.write("({0} ? {1} : {2})", condition, a, b)


class Expression:
    """A value of a formula: the name of a variable of the kernel."""

    __slots__ = ("has_elements", "kind", "text", "trace")

    def __init__(self, trace: Trace, text: str, kind: str, has_elements: bool | None = None) -> None:
        self.trace, self.text, self.kind = trace, text, kind
        self.has_elements = kind == ELEMENT if has_elements is None else has_elements

    def __bool__(self) -> bool:
        raise TypeError("a formula of kernels does not branch on its values")

    def __neg__(self) -> Expression:
        return self.trace.write("-{0}", self)

    def __add__(self, other: Any) -> Expression:
        return self.trace.write("{0} + {1}", self, other)

    def __radd__(self, other: Any) -> Expression:
        return self.trace.write("{0} + {1}", other, self)

    def __sub__(self, other: Any) -> Expression:
        return self.trace.write("{0} - {1}", self, other)

    def __rsub__(self, other: Any) -> Expression:
        return self.trace.write("{0} - {1}", other, self)

    def __mul__(self, other: Any) -> Expression:
        return self.trace.write("{0} * {1}", self, other)

    def __rmul__(self, other: Any) -> Expression:
        return self.trace.write("{0} * {1}", other, self)

    def __truediv__(self, other: Any) -> Expression:
        return self.trace.write("{0} / {1}", self, other)

    def __rtruediv__(self, other: Any) -> Expression:
        return self.trace.write("{0} / {1}", other, self)

    def __pow__(self, other: Any) -> Expression:
        return self.trace.write("pow({0}, {1})", self, other)

    def __rpow__(self, other: Any) -> Expression:
        return self.trace.write("pow({0}, {1})", other, self)

    def __gt__(self, other: Any) -> Expression:
        return self.trace.write("{0} > {1}", self, other, kind=TRUTH)

    def __lt__(self, other: Any) -> Expression:
        return self.trace.write("{0} < {1}", self, other, kind=TRUTH)
