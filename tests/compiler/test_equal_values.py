"""Values that are equal and not the same: 1, 1.0 and True in sets and as keys, and objects of another class."""

from __future__ import annotations

from typing import Any

import pytest
from beside_eager import reasons, recordings

import ox

ONE = ox.ones(1)
ORDER = (1, 1, 1.0, True, 1.0, 1)


def test_what_a_set_holds() -> None:
    held: set[Any] = {1}
    compiled = ox.compile(lambda x: x * next(iter(held)))
    for value in ORDER:
        held.clear()
        held.add(value)
        assert compiled(ox.arange(2)).dtype == (ox.arange(2) * value).dtype
    assert not reasons(compiled)


def test_a_frozenset_that_is_replaced() -> None:
    class Holder:
        held: Any = frozenset((1,))

    holder = Holder()
    compiled = ox.compile(lambda x: x * next(iter(holder.held)))
    for value in ORDER:
        holder.held = frozenset((value,))
        assert compiled(ox.arange(2)).dtype == (ox.arange(2) * value).dtype


def test_a_set_that_holds_the_same_again_is_no_reason_to_record() -> None:
    held = {1, "a", (2, 3)}
    compiled = ox.compile(lambda x: x * len(held))
    for _ in range(3):
        held.clear()
        held.update(((2, 3), "a", int("1")))
        assert compiled(ONE).item() == 3
    assert len(recordings(compiled)) == 1


def test_keys_of_an_argument() -> None:
    compiled = ox.compile(lambda held: {key: value * key for key, value in held.items()})
    for key in ORDER:
        found = compiled({key: ox.arange(2)})
        assert [type(each) for each in found] == [type(key)]
        assert found[key].dtype == (ox.arange(2) * key).dtype
    assert len(recordings(compiled)) == 3


class First:
    def go(self, x: Any) -> Any:
        return x


class Second:
    def go(self, x: Any) -> Any:
        return x + 10


class FirstWithSlots:
    __slots__ = ("value",)
    go = First.go


class SecondWithSlots:
    __slots__ = ("value",)
    go = Second.go


@pytest.mark.parametrize(("one", "other"), [(First, Second), (FirstWithSlots, SecondWithSlots)])
def test_the_class_of_an_object(one: type, other: type) -> None:
    held: Any = one()
    compiled = ox.compile(lambda x: held.go(x))
    assert [compiled(ONE).item() for _ in range(3)] == [1, 1, 1]
    held.__class__ = other
    assert [compiled(ONE).item() for _ in range(3)] == [11, 11, 11]
    assert len(recordings(compiled)) == 2
