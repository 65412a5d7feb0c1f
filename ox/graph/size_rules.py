"""Which sizes a file is right for: ranges of named sizes, and conditions between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ox.core.size_expression import Expression, evaluate, from_lists, leaves, solve, text

SCANNED = 4096  # sizes that are tried one by one; beyond them a limit is searched by bisection
LARGEST = 1 << 40
STEPS = 128  # the largest multiple that is looked for


@dataclass(frozen=True)
class SizeRange:
    """The sizes from `min` to `max` that leave `remainder` when divided by `multiple_of`. `max` None: no limit."""

    min: int = 1
    max: int | None = None
    multiple_of: int = 1
    remainder: int = 0

    def __contains__(self, size: int) -> bool:
        return self.min <= size and (self.max is None or size <= self.max) and size % self.multiple_of == self.remainder

    @property
    def open(self) -> bool:
        """Whether every size is in it, and not 0."""
        return self.min == 1 and self.max is None and self.multiple_of == 1

    def __str__(self) -> str:
        """``17..``, ``1..512``, ``32..2048 in steps of 32``."""
        last = "" if self.max is None else str(self.max)
        ends = last if self.max == self.min else f"{self.min}..{last}"
        return ends if self.multiple_of == 1 or self.max == self.min else f"{ends} in steps of {self.multiple_of}"

    def to_json(self) -> dict[str, Any]:
        values = {"min": self.min, "max": self.max, "multiple_of": self.multiple_of, "remainder": self.remainder}
        return {key: value for key, value in values.items() if value != getattr(_ANY, key)}

    @classmethod
    def from_json(cls, value: Any) -> SizeRange:
        numbers = {key: value.get(key, getattr(_ANY, key)) for key in ("min", "max", "multiple_of", "remainder")}
        if not all(type(n) is int or (n is None and key == "max") for key, n in numbers.items()):
            raise ValueError(f"no range of sizes: {value!r}")
        if numbers["multiple_of"] < 1:
            raise ValueError(f"sizes in steps of {numbers['multiple_of']}")
        return cls(**numbers)

    def first_from(self, size: int) -> int:
        """The smallest size from `size` on that its smallest one and its steps allow."""
        low = max(self.min, size)
        return low + (self.remainder - low) % self.multiple_of

    def nearest(self, size: int) -> int | None:
        """The size in it that is nearest to `size`, the larger one of two; None where it is empty."""
        low = self.first_from(self.min)
        below = size - (size - self.remainder) % self.multiple_of
        found = [n for n in (below, below + self.multiple_of, low) if n in self]
        if self.max is not None and size > self.max:
            found.append(self.max - (self.max - self.remainder) % self.multiple_of)
        return min((n for n in found if n in self), key=lambda n: (abs(n - size), -n), default=None)


_ANY = SizeRange()


def range_around(size: int, holds: Callable[[int], bool], steps: Iterable[int] = (), lowest: int = 1) -> SizeRange:
    """The largest range of evenly spaced sizes around `size`, from `lowest` on, in which `holds` is true.

    Every size up to 4096, or four times `size`, is tried; beyond, one limit is looked for. The sizes are up to 128
    apart, or as far as `steps` say.
    """
    last = max(SCANNED, 4 * size)
    good = [n >= lowest and holds(n) for n in range(last + 1)]
    best = (1, 1, size, size)
    for step in sorted({*range(1, STEPS + 1), *steps}):
        low, high = size, size
        while low - step >= lowest and good[low - step]:
            low -= step
        while high + step <= last and good[high + step]:
            high += step
        best = max(best, ((high - low) // step + 1, -step, low, high))
    _, step, low, high = best
    step = abs(step)
    if high == low:
        return SizeRange(low, low)
    if high + step <= last:
        return SizeRange(low, high, step, size % step)
    end = _last_beyond(high, step, holds)
    return SizeRange(low, end, step, size % step)


def _last_beyond(high: int, step: int, holds: Callable[[int], bool]) -> int | None:
    """The last size from `high` on, in steps, for which `holds` is true; None where there is no end."""
    jump = step
    while high + jump < LARGEST and holds(high + jump):
        jump *= 2
    if high + jump >= LARGEST:
        return None
    good, bad = high + jump // 2 if jump > step else high, high + jump
    while bad - good > step:
        middle = good + (bad - good) // (2 * step) * step
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good


@dataclass(frozen=True)
class SizeRules:
    """Ranges by the name of a size, and comparisons between several sizes that must hold."""

    ranges: Mapping[str, SizeRange] = field(default_factory=dict)
    conditions: tuple[Expression, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.ranges or self.conditions)

    def __str__(self) -> str:
        """``seq in 17.., h in 32..2048 in steps of 32, rows == columns``; what names say by themselves is left out."""
        ranges = [f"{name} in {found}" for name, found in self.ranges.items()]
        return ", ".join([*ranges, *(text(each) for each in self.conditions if not is_name_of(each))])

    def names(self) -> set[str]:
        """The sizes that the rules are of."""
        return {*self.ranges, *(name for each in self.conditions for name in leaves(each))}

    def of(self, names: set[str]) -> SizeRules:
        """The rules that speak of these sizes alone."""
        ranges = {name: each for name, each in self.ranges.items() if name in names}
        return SizeRules(ranges, tuple(each for each in self.conditions if set(leaves(each)) <= names))

    def broken(self, sizes: Mapping[str, int]) -> str | None:
        """The first rule that these sizes break, ``seq in 17..``; None where they keep all of them. A size that is not
        given breaks none, unless no size that it could be goes with those that are: ``2 * k`` of an odd size.
        0 breaks what does not say that it may be."""
        sizes = dict(sizes)
        for unknown, told in self._unknown(sizes).items():
            solved = self._solved(unknown, told, sizes)
            if solved is None:
                names = " and ".join(str(each[1]) for each in told)
                return f"{names}, for {unknown} in {self.ranges.get(unknown, _ANY)}"
            sizes |= solved
        named = {each[1] for each in filter(is_name_of, self.conditions)}
        for name, size in sizes.items():
            if size == 0 and name not in named and 0 not in self.ranges.get(name, _ANY):
                return f"{name} in {self.ranges.get(name, _ANY)}"
        for name, found in self.ranges.items():
            if name in sizes and sizes[name] not in found:
                return f"{name} in {found}"
        for condition in self.conditions:
            try:
                if not evaluate(condition, sizes):
                    if is_name_of(condition):
                        return f"{condition[1]} = {evaluate(condition[2], sizes)}"
                    return text(condition)
            except KeyError:
                continue
            except (ZeroDivisionError, OverflowError):
                return text(condition)
        return None

    def _unknown(self, sizes: Mapping[str, int]) -> dict[str, list[Expression]]:
        """The sizes that only others tell, which follow from them, and the names of these as conditions."""
        found: dict[str, list[Expression]] = {}
        for each in filter(is_name_of, self.conditions):
            left = {name for name in leaves(each[2]) if name not in sizes}
            if each[1] in sizes and len(left) == 1:
                found.setdefault(left.pop(), []).append(each)
        return found

    def _solved(self, unknown: str, named: Sequence[Expression], sizes: Mapping[str, int]) -> dict[str, int] | None:
        """The smallest value of a size that is not given; empty where it cannot be told, None where there is none."""
        allowed = self.ranges.get(unknown, _ANY)
        ends = [solve(each[2], unknown, sizes[each[1]], sizes[each[1]], sizes) for each in named]
        known = [each for each in ends if each is not None]
        if not known:
            return {}
        low, high = max(low for low, _ in known), min(high for _, high in known)
        first = allowed.first_from(low)
        return {unknown: first} if first <= high and first in allowed else None

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.ranges:
            found["sizes"] = {name: each.to_json() for name, each in self.ranges.items()}
        if self.conditions:
            found["conditions"] = list(self.conditions)
        return found

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SizeRules:
        """Raises ValueError, TypeError or AttributeError for what `to_json` did not make."""
        ranges = {str(name): SizeRange.from_json(each) for name, each in value.get("sizes", {}).items()}
        return cls(ranges, tuple(map(from_lists, value.get("conditions", []))))


def is_name_of(condition: Expression) -> bool:
    """Whether a condition says that the size called ``n + 1`` is n + 1."""
    return bool(condition[0] == "==" and condition[1] == text(condition[2]))


def sizes_by_name(dims: Sequence[Sequence[int | str | None]], shapes: Sequence[Sequence[int]]) -> dict[str, int]:
    """The named sizes in the shapes of inputs; where a name has several values, the last."""
    return {
        dim: size
        for names, shape in zip(dims, shapes, strict=True)
        for dim, size in zip(names, shape, strict=False)
        if isinstance(dim, str)
    }
