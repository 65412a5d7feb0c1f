"""How a size is computed from others: nested tuples of an operator and what it takes, ``("//", ("+", "n", 1), 2)``.

A leaf is a number, the name of a size, or an object that stands for one that is not known yet. Plain data, so that it
can be evaluated at other sizes, printed, and stored in a file.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Expression = Any  # int, float, a leaf, or a tuple (operator, Expression, Expression)

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_BINDS = {"**": 3, "*": 2, "/": 2, "//": 2, "%": 2, "+": 1, "-": 1}  # comparisons: 0


def combined(sign: str, a: Expression, b: Expression) -> Expression:
    """None, for what is not known, where a part is."""
    return None if a is None or b is None else (sign, a, b)


def evaluate(expression: Expression, sizes: Mapping[Any, Any]) -> Any:
    """The value at these sizes.

    Raises:
        KeyError: a leaf that has no value.
        ZeroDivisionError: a division by a size that is 0 here.
    """
    if isinstance(expression, tuple):
        sign, a, b = expression
        return OPERATORS[sign](evaluate(a, sizes), evaluate(b, sizes))
    return expression if isinstance(expression, (int, float)) else sizes[expression]


def leaves(expression: Expression) -> Iterator[Any]:
    """What it is computed from, except numbers."""
    if isinstance(expression, tuple):
        for part in expression[1:]:
            yield from leaves(part)
    elif not isinstance(expression, (int, float)):
        yield expression


def substituted(expression: Expression, known: Mapping[Any, Expression]) -> Expression:
    """With other expressions in place of leaves."""
    if isinstance(expression, tuple):
        return (expression[0], *(substituted(part, known) for part in expression[1:]))
    return expression if isinstance(expression, (int, float)) else known.get(expression, expression)


def solve(
    expression: Expression, unknown: Any, low: int, high: int, sizes: Mapping[Any, Any]
) -> tuple[int, int] | None:
    """The first and the last whole number that `unknown` can be for the value to be from `low` to `high`; None where
    it cannot be told: it stands there twice, or is not only added to, subtracted from, multiplied or divided down.

    Raises:
        KeyError: another leaf that has no value.
    """
    if expression == unknown:
        return low, high
    if not isinstance(expression, tuple) or list(leaves(expression)).count(unknown) != 1:
        return None
    sign, a, b = expression
    if unknown in leaves(b):
        if sign == "-":
            left = evaluate(a, sizes)
            return solve(b, unknown, left - high, left - low, sizes)
        if sign not in ("+", "*"):
            return None
        a, b = b, a
    right = evaluate(b, sizes)
    if sign in ("+", "-"):
        moved = right if sign == "+" else -right
        return solve(a, unknown, low - moved, high - moved, sizes)
    if sign == "*" and right > 0:
        return solve(a, unknown, -(-low // right), high // right, sizes)
    if sign == "//" and right > 0:
        return solve(a, unknown, low * right, high * right + right - 1, sizes)
    return None


def inverse(expression: Expression, unknown: Any, value: Expression) -> Expression:
    """What `unknown` is where `expression` is `value`; None where no expression says it, or several numbers are."""
    if expression == unknown:
        return value
    if not isinstance(expression, tuple) or list(leaves(expression)).count(unknown) != 1:
        return None
    sign, a, b = expression
    if unknown in leaves(b):
        if sign == "-":
            return inverse(b, unknown, combined("-", a, value))
        if sign not in ("+", "*"):
            return None
        a, b = b, a
    opposite = {"+": "-", "-": "+", "*": "//"}.get(sign)
    return None if opposite is None else inverse(a, unknown, combined(opposite, value, b))


def text(expression: Expression, around: int = -1) -> str:
    """As Python writes it: ``(n + 1) // 2 > 8``."""
    if not isinstance(expression, tuple):
        return str(expression)
    sign, a, b = expression
    binds = _BINDS.get(sign, 0)
    written = f"{text(a, binds - 1)} {sign} {text(b, binds)}"
    return f"({written})" if binds <= around else written


def from_lists(value: Any) -> Expression:
    """The inverse of what JSON makes of an expression, lists; raises ValueError for anything else."""
    if isinstance(value, list):
        if len(value) != 3 or value[0] not in OPERATORS:
            raise ValueError(f"no expression of sizes: {value!r}")
        return (value[0], from_lists(value[1]), from_lists(value[2]))
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        return value
    raise ValueError(f"no expression of sizes: {value!r}")
