"""Results that are dicts of other classes, and containers that hold themselves."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from beside_eager import reasons, recordings
from rows import rows

import ox

ONE = ox.ones(1)


class Plain(dict[str, Any]):
    pass


class Own(dict[str, Any]):
    def __init__(self, value: Any) -> None:
        super().__init__(y=value)


class Noted(Plain):
    note = "class"


def noted(y: Any) -> Noted:
    result = Noted(y=y)
    result.note = "object"
    return result


@rows(
    ("make", "recorded"),
    [
        (lambda y: {"y": y}, True),
        (lambda y: OrderedDict(y=y), True),
        (lambda y: Plain(y=y), True),
        (lambda y: defaultdict(list, {"y": y}), False),
        (lambda y: Counter({"y": y}), False),
        (Own, False),
        (noted, False),
    ],
    ids=["dict", "OrderedDict", "a plain class", "defaultdict", "Counter", "its own __init__", "with attributes"],
)
def test_a_result_keeps_its_class(make: Callable[[Any], Any], recorded: bool) -> None:
    compiled = ox.compile(lambda x: make(x + 1))
    for i in range(3):
        found, expected = compiled(ONE * i), make(ONE * i + 1)
        assert type(found) is type(expected) and found["y"].item() == expected["y"].item()
        assert getattr(found, "__dict__", None) == getattr(expected, "__dict__", None)
        assert getattr(found, "default_factory", None) is getattr(expected, "default_factory", None)
    assert bool(recordings(compiled)) == recorded
    assert recorded or make is Own or "the result holds an object of the class" in reasons(compiled)


def test_an_argument_that_holds_itself() -> None:
    held: list[Any] = [ONE]
    held.append(held)
    compiled = ox.compile(lambda each: each[1][0] + 1)
    assert [compiled(held).item() for _ in range(3)] == [2.0] * 3
    assert "an argument holds itself" in reasons(compiled)


@pytest.mark.parametrize("kind", [list, dict])
def test_a_result_that_holds_itself(kind: type) -> None:
    @ox.compile
    def compiled(x: Any) -> Any:
        result: Any = {0: x + 1} if kind is dict else [x + 1, None]
        result[1] = result
        return result

    for i in range(3):
        assert compiled(ONE * i)[1][1][0].item() == i + 1
    assert "the result holds itself" in reasons(compiled)


def test_an_argument_that_comes_to_hold_itself() -> None:
    def call(x: Any, held: Any) -> Any:
        held.append(held)
        return x + 1

    compiled = ox.compile(call)
    for _ in range(3):
        held: list[Any] = []
        assert compiled(ONE, held).item() == 2.0 and held[0] is held
    assert "an argument is changed by the call" in reasons(compiled)


@pytest.mark.parametrize("what", ["dtype", "shape", "device"])
def test_what_describes_a_tensor_is_a_result_and_an_argument(what: str) -> None:
    compiled = ox.compile(lambda x, given: (x * 2, getattr(x.bfloat16(), what), given))
    for _ in range(3):
        x = ox.ones(2)
        y, found, given = compiled(x, getattr(x, what))
        assert y.tolist() == [2, 2] and found == getattr(x.bfloat16(), what) and given == getattr(x, what)
        assert type(given) is type(getattr(x, what))
    assert len(recordings(compiled)) == 1
