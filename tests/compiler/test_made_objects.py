"""Objects that a call makes: they are no state, and dataclasses among them are results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from beside_eager import reasons, recordings

import ox


@dataclass
class Output:
    loss: Any
    logits: Any = None


@dataclass(frozen=True)
class Frozen:
    x: Any
    twice: Any = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "twice", self.x * 2)


@dataclass
class Doubled:
    x: Any

    def __post_init__(self) -> None:
        self.x = self.x * 2


@dataclass(slots=True)
class Slotted:
    x: Any
    count: int = 2


@pytest.mark.parametrize("kind", [Output, Frozen, Doubled, Slotted])
def test_a_dataclass_is_returned(kind: Callable[[Any], Any]) -> None:
    def function(x: ox.Tensor) -> Any:
        return kind(x + 1)

    compiled = ox.compile(function)
    for n in range(4):
        x = ox.ones(2) * n
        result, expected = compiled(x), function(x)
        assert type(result) is kind and repr(result) == repr(expected)
    assert len(recordings(compiled)) == 1 and len(compiled.history) == 1


def test_more_than_its_fields_stays_eager() -> None:
    def function(x: ox.Tensor) -> Output:
        output = Output(x + 1)
        output.more = x + 2
        return output

    compiled = ox.compile(function)
    for n in range(3):
        assert compiled(ox.ones(2) * n).more.tolist() == [n + 2] * 2
    assert not recordings(compiled) and "an object of the class Output" in reasons(compiled)


class Scaler:
    factor = 2

    def __init__(self, x: ox.Tensor) -> None:
        self.x, self.seen = x, []

    def scaled(self) -> ox.Tensor:
        self.seen.append(1)
        self.last = self.x * self.factor * len(self.seen)
        return self.last


def test_methods_of_an_object_that_the_call_makes() -> None:
    compiled = ox.compile(lambda x: Scaler(x).scaled())
    for n in range(3):
        assert compiled(ox.ones(2) * n).tolist() == [2 * n] * 2
    assert len(compiled.history) == 1
    Scaler.factor = 3
    try:
        assert compiled(ox.ones(2)).tolist() == [3] * 2
    finally:
        Scaler.factor = 2


def test_an_object_that_is_kept_is_state() -> None:
    kept: list[Any] = []

    def function(x: ox.Tensor) -> ox.Tensor:
        kept.append(Output(x * 2))
        return kept[-1].loss + len(kept)

    compiled = ox.compile(function)
    for n in range(3):
        assert compiled(ox.ones(2) * n).tolist() == [2 * n + n + 1] * 2
    assert len(kept) == 3 and not recordings(compiled)


def test_an_object_that_is_made_anew_is_state() -> None:
    class Counter:
        def __init__(self) -> None:
            self.count = getattr(self, "count", 0) + 1

    counter = Counter()

    def function(x: ox.Tensor) -> ox.Tensor:
        counter.__init__()
        return x * counter.count

    compiled = ox.compile(function)
    assert [compiled(ox.ones(1)).item() for _ in range(4)] == [2, 3, 4, 5]
