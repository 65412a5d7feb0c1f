"""Which objects a result is made of: a container of one's own is itself, and one tensor is one tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from beside_eager import reasons, recordings

import ox
from ox import nn

ONE = ox.ones(1)


class Empty:
    notes: list[Any]

    def held(self) -> Any:
        return self.notes


class Holder:
    def __init__(self) -> None:
        self.notes = ["a"]
        self.tensors = (ox.ones(2), ox.ones(3))


def holding(notes: list[Any]) -> Any:
    return lambda: notes


notes: list[Any] = []
table = {"ones": ox.ones(2)}
holder = Holder()


@pytest.mark.parametrize(
    ("function", "kept"),
    [
        (lambda x: (x * 2, notes), notes),
        (lambda x: [x * 2, table], table),
        (lambda x: (x + 1, holder.notes), holder.notes),
        (lambda x: (x + 1, holder.tensors), holder.tensors),
        (lambda x: (x + 1, holder), holder),
    ],
    ids=["a list", "a dict", "an attribute", "a tuple", "an object"],
)
def test_what_was_there_before_is_itself(function: Callable[[Any], Any], kept: Any) -> None:
    compiled = ox.compile(function)
    for _ in range(3):
        assert compiled(ONE)[1] is kept
    assert recordings(compiled) and not reasons(compiled)


def by_an_object(x: Any) -> Any:
    made = Empty()
    made.notes = ["a", x.ndim]
    return x, made.held()


def by_a_closure(x: Any) -> Any:
    return x, holding(["a", x.ndim])()


@pytest.mark.parametrize("function", [by_an_object, by_a_closure])
def test_what_the_call_makes_is_new_each_time(function: Callable[[Any], Any]) -> None:
    compiled = ox.compile(function)
    found = [compiled(ONE * i)[1] for i in range(4)]
    assert recordings(compiled) and len({id(each) for each in found}) == 4


def test_a_list_that_is_an_argument_and_a_global_variable() -> None:
    one, other = [ox.ones(1), "a"], [ox.ones(1) * 2, "a"]
    compiled = ox.compile(lambda x, given: (x * len(one), given))
    for given in (one, one, other, one, other):
        y, found = compiled(ONE, given)
        assert y.item() == 2 and found[0] is given[0]


def test_one_tensor_in_two_places() -> None:
    model = nn.Linear(1, 1)

    def call(x: Any) -> Any:
        y = model(x)
        return {"y": y, "all": [y, (y, x)], "sum": y.sum()}

    compiled = ox.compile(call, fullgraph=True)
    for _ in range(3):
        model.zero_grad()
        found = compiled(ox.ones(2, 1))
        y = found["y"]
        assert found["all"][0] is y and found["all"][1][0] is y
        (y.sum() + found["all"][0].sum() + found["sum"]).backward()
        assert model.weight.grad is not None and model.weight.grad.item() == 6
    assert len(recordings(compiled)) == 1
