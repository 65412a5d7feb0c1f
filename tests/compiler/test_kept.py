"""A tensor that Python code keeps, and that lives on for another reason as well: the call stays eager."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from beside_eager import reasons, recordings
from rows import rows

import ox
from ox import nn

HELD: Any = SimpleNamespace(kept=None)
BOX: dict[str, Any] = {}
LATEST: Any = None


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 1, bias=False)
        nn.init.ones_(self.linear.weight)
        self.hidden: Any = None

    def forward(self, x: Any) -> Any:
        self.hidden = x if self.hidden is None else self.linear(self.hidden.detach() + x)
        return self.hidden


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.out = nn.Linear(2, 2), nn.Linear(2, 2)
        self.weights: Any = None

    def forward(self, x: Any) -> Any:
        self.weights = self.linear(x).softmax(-1)
        return self.out(self.weights)


def in_object(x: Any) -> Any:
    HELD.kept = x * 2
    return HELD.kept


def by_a_computed_name(x: Any) -> Any:
    y = x * 2
    setattr(HELD, "ke" + "pt", y)
    return y


def in_dict(x: Any) -> Any:
    BOX["kept"] = x * 2
    return BOX["kept"]


def in_global(x: Any) -> Any:
    global LATEST
    LATEST = x * 2
    return LATEST


def in_globals(x: Any) -> Any:
    y = x * 2
    globals()["LATEST"] = y
    return y


def an_argument(x: Any) -> Any:
    HELD.kept = x
    return x * 2


def in_a_cell() -> tuple[Callable[[Any], Any], Callable[[], Any]]:
    def function(x: Any) -> Any:
        nonlocal kept
        kept = x * 2
        return kept

    def read() -> Any:
        return kept

    if BOX is None:
        kept = None  # the cell is empty at the first call
    return function, read


KEEPERS: dict[str, tuple[Callable[[Any], Any], Callable[[], Any], int]] = {
    "an object": (in_object, lambda: HELD.kept, 2),
    "a computed name": (by_a_computed_name, lambda: HELD.kept, 2),
    "a dict": (in_dict, lambda: BOX["kept"], 2),
    "a global variable": (in_global, lambda: LATEST, 2),
    "globals()": (in_globals, lambda: LATEST, 2),
    "an argument": (an_argument, lambda: HELD.kept, 1),
    "a cell": (*in_a_cell(), 2),
}


def test_state_that_is_the_result() -> None:
    compiled = ox.compile(Recurrent())
    assert [compiled(ox.ones(1)).item() for _ in range(5)] == [1, 2, 3, 4, 5]
    assert "a tensor that the call made is kept by attribute 'hidden' of Recurrent" in str(compiled.explain())


def test_what_the_backward_needs() -> None:
    net = Attention()
    compiled = ox.compile(net)
    for i in range(6):
        x = ox.full((3, 2), float(i))
        compiled(x)
        assert ox.allclose(net.weights, net.linear(x).softmax(-1))


@rows("name", KEEPERS)
def test_results_and_arguments(name: str) -> None:
    function, read, factor = KEEPERS[name]
    compiled = ox.compile(function)
    for i in range(5):
        compiled(ox.full((1,), float(i)))
        assert read().item() == factor * i
    assert not recordings(compiled)


def test_a_gradient() -> None:
    net = nn.Linear(2, 1)
    optimizer = ox.optim.SGD(net.parameters(), lr=0.1)

    @ox.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        BOX["gradient"] = net.weight.grad
        optimizer.step()
        return loss.detach()

    for i in range(5):
        step(ox.ones(1, 2) * i)
        assert BOX["gradient"] is net.weight.grad


def test_a_retained_gradient_is_not_added_twice() -> None:
    net: Any = nn.Linear(2, 2)
    shelf: Any = Future()  # attributes of libraries are not compared

    @ox.compile
    def function(x: Any) -> Any:
        hidden = net(x)
        hidden.retain_grad()
        shelf._result = hidden
        return hidden.sigmoid() * 0 + hidden * 3

    for _ in range(8):
        function(ox.zeros(1, 2)).sum().backward()
        assert shelf._result.grad[0, 0].item() == 3


def test_an_attribute_of_a_result() -> None:
    first, last = nn.Linear(2, 2), nn.Linear(2, 2)

    def attended(x: Any) -> Any:
        weights = first(x).softmax(-1)
        y = last(weights)
        y.weights = weights
        return y

    compiled = ox.compile(attended)
    for i in range(4):
        x = ox.full((3, 2), float(i))
        assert ox.allclose(compiled(x).weights, first(x).softmax(-1))
    assert "the attribute 'weights' of a result is set" in reasons(compiled)
