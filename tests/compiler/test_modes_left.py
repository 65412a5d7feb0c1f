"""Switches that a statement inside of a call turns, as `ox.set_grad_enabled`: they outlive it, as in eager code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from beside_eager import reasons, recordings

import ox
from ox import nn
from ox.core.mode import MODE, switch_mode
from ox.core.random_stream import NEWEST
from ox.errors import CompileError

ONE = ox.ones(1)


@pytest.fixture(autouse=True)
def gradients_afterwards() -> Iterator[None]:
    yield
    ox.set_grad_enabled(True)
    ox.set_autocast_enabled("cpu", False)
    ox.random.torch_compatible(False)
    ox.random.stream_version(NEWEST)
    ox.manual_seed(0)


def off(x: Any) -> Any:
    ox.set_grad_enabled(False)
    return x * 2


def off_and_eager(x: Any) -> Any:
    ox.set_grad_enabled(False)
    return x.sum().item()


@pytest.mark.parametrize("function", [off, off_and_eager])
def test_gradients_stay_off(function: Callable[[Any], Any]) -> None:
    compiled = ox.compile(function)
    for _ in range(3):
        ox.set_grad_enabled(True)
        compiled(ONE)
        assert not ox.is_grad_enabled()
    assert not recordings(compiled) and reasons(compiled)


def test_gradients_stay_on() -> None:
    def call(x: Any) -> Any:
        ox.set_grad_enabled(True)
        return x * 2

    compiled = ox.compile(call)
    for _ in range(3):
        ox.set_grad_enabled(False)
        compiled(ONE)
        assert ox.is_grad_enabled()
    assert "the gradient mode is another one after the call" in reasons(compiled)


def test_in_a_module_inside() -> None:
    class Off(nn.Module):
        def forward(self, x: Any) -> Any:
            y = x.relu() + 1
            ox.set_grad_enabled(False)
            return y

    model = nn.Sequential(Off(), nn.ReLU())
    compiled = ox.compile(lambda x: (x.sum().item(), model(x))[1])
    for _ in range(6):
        ox.set_grad_enabled(True)
        compiled(ONE)
        assert not ox.is_grad_enabled()


def test_a_call_that_raises() -> None:
    def call(x: Any) -> Any:
        ox.set_grad_enabled(False)
        raise KeyError

    compiled = ox.compile(call)
    for _ in range(3):
        ox.set_grad_enabled(True)
        with pytest.raises(KeyError):
            compiled(ONE)
        assert not ox.is_grad_enabled()


def test_autocast_that_is_set_inside() -> None:
    def call(x: Any) -> Any:
        ox.set_autocast_enabled("cpu", True)
        return x * 2

    compiled = ox.compile(call)
    for _ in range(3):
        ox.set_autocast_enabled("cpu", False)
        compiled(ONE)
        assert (ox.ones(2, 2) @ ox.ones(2, 2)).dtype == ox.bfloat16
    assert "autocast is set for what comes after the call" in reasons(compiled)


def test_what_is_turned_back_is_recorded() -> None:
    def call(x: Any) -> Any:
        with ox.set_grad_enabled(False), ox.autocast("cpu"):
            y = x * 2
        ox.set_grad_enabled(False)
        ox.set_grad_enabled(True)
        return y

    compiled = ox.compile(call, fullgraph=True)
    assert [compiled(ONE).item() for _ in range(2)] == [2, 2]
    with pytest.raises(CompileError, match="the gradient mode"):
        ox.compile(off, fullgraph=True)(ONE)


def test_a_block_gives_back_its_own_switches_alone() -> None:
    before = MODE.get()
    with switch_mode(inference=True):
        ox.set_grad_enabled(False)
    assert not MODE.get().grad and MODE.get().inference == before.inference
    ox.set_grad_enabled(True)
    with switch_mode(grad=False):
        ox.set_grad_enabled(True)
        ox.set_grad_enabled(False)
    assert ox.is_grad_enabled()


OLD = {"seed": 9, "counter": 0}  # of version 1


def drawn(call: Callable[[Any], Any], begin: Callable[[], Any]) -> tuple[list[float], float]:
    begin()
    return call(ox.ones(12)).tolist(), ox.rand(1).item()


@pytest.mark.parametrize("begin", [
    lambda: ox.random.set_state(OLD),
    lambda: (ox.random.stream_version(1), ox.manual_seed(9)),
    lambda: (ox.random.torch_compatible(True), ox.manual_seed(9)),
])  # fmt: skip
def test_random_numbers_are_those_of_the_version(begin: Callable[[], Any]) -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Tanh())
    compiled = ox.compile(model)
    for _ in range(3):
        drawn(compiled, lambda: ox.manual_seed(9))
    assert drawn(compiled, begin) == drawn(model, begin)
    ox.random.torch_compatible(False)
    ox.random.stream_version(NEWEST)
    before = recordings(compiled)
    assert drawn(compiled, lambda: ox.manual_seed(9)) == drawn(model, lambda: ox.manual_seed(9))
    assert recordings(compiled) == before


def test_a_generator_of_ones_own_that_loads_an_old_state() -> None:
    generator = ox.Generator().manual_seed(9)

    def call(x: Any) -> Any:
        return x * ox.rand(12, generator=generator)

    compiled = ox.compile(call)
    for _ in range(3):
        compiled(ox.ones(12))
    assert drawn(compiled, lambda: generator.set_state(OLD))[0] == drawn(call, lambda: generator.set_state(OLD))[0]


def test_random_switches_that_are_turned_inside() -> None:
    def call(x: Any) -> Any:
        ox.random.stream_version(1)
        return x * 2

    compiled = ox.compile(call)
    for _ in range(3):
        ox.random.stream_version(NEWEST)
        compiled(ONE)
        assert ox.random.stream_version.current == 1


def test_the_state_of_a_generator_is_read_at_each_call() -> None:
    def call(x: Any) -> Any:
        return x * ox.random.get_state()["counter"]

    compiled = ox.compile(call)
    for _ in range(3):
        ox.rand(4)
        assert compiled(ONE).item() == call(ONE).item()
    assert "get_state() is called" in reasons(compiled)
