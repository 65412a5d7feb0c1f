"""How much a template may do: a template comes with a model, and its author may be hostile."""

from __future__ import annotations

from collections.abc import ItemsView, KeysView, ValuesView
from time import thread_time
from typing import Any

MAX_SECONDS = 2.0  # of this thread's work: a busy machine is not the template's fault
MAX_STEPS = 200_000  # passes of loops, and calls of filters, functions and macros
MAX_VALUE = 8 << 20  # characters of one value, counted as often as they are in it
MAX_NESTED = 1 << 18  # the same of values inside of it
MAX_TOTAL = 64 << 20  # of all values together
MAX_BITS = 1024  # of a whole number


class BudgetError(Exception):
    """A template did too much."""


CONTAINERS = (list, tuple, dict, KeysView, ValuesView, ItemsView)


class Changeable:
    """A value that may grow after it was counted."""


class RenderBudget:
    """What is left for one rendering."""

    __slots__ = ("_deadline", "_steps", "_total")

    def __init__(self) -> None:
        self._deadline = thread_time() + MAX_SECONDS
        self._steps, self._total = MAX_STEPS, MAX_TOTAL

    def step(self, size: int = 0) -> None:
        """One step that makes `size` characters.

        Raises:
            BudgetError: too many steps, too much text, or too late.
        """
        self._steps -= 1
        self._total -= size
        if self._steps < 0:
            raise BudgetError(f"more than {MAX_STEPS:,} steps")
        if size > MAX_VALUE or self._total < 0:
            raise BudgetError("too much text")
        if thread_time() > self._deadline:
            raise BudgetError(f"more than {MAX_SECONDS:g} seconds")

    def spend(self, value: Any) -> Any:
        """Counts a value that was just made, and returns it."""
        self.step(len(value) if isinstance(value, str | list | tuple | dict) else 0)
        if isinstance(value, CONTAINERS):
            _check_nested(value)
        return value

    def check_multiply(self, left: Any, right: Any) -> None:
        """Before left * right, which may be far larger than both."""
        for value, count in ((left, right), (right, left)):
            if isinstance(value, str | list | tuple):
                self.step(len(value) * max(0, count) if isinstance(count, int) else 0)
                return
        self.check_bits(left, right)

    def check_bits(self, left: Any, right: Any, power: bool = False) -> None:
        """Before a product or a power of numbers."""
        if isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * max(1, right) if power else left.bit_length() + right.bit_length()
            if bits > MAX_BITS:
                raise BudgetError("a number is too large")
        self.step()


def _check_nested(value: Any) -> None:
    """A list that has another one twice is twice as long as it when it is written or compared, although it takes no
    more memory: after forty of them, no text could hold it.

    Raises:
        BudgetError: it is too large, counted like this.
    """
    values, nested, size = [value], 0, 0
    while values:
        one = values.pop()
        if isinstance(one, str):
            size += len(one)
        elif isinstance(one, CONTAINERS):
            nested += len(one)
            if nested <= MAX_NESTED:
                values += one.items() if isinstance(one, dict) else one
        elif isinstance(one, Changeable):
            raise BudgetError("a namespace inside of another value")
        if size > MAX_VALUE or nested > MAX_NESTED:
            raise BudgetError("too much text")
