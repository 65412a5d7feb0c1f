"""no_grad and its kin: as context managers, as decorators, in threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import ox
from ox.autograd import is_inference_mode_enabled
from ox.errors import GradientError

x = ox.ones(1, requires_grad=True)


def tracks() -> bool:
    assert (x * 2).requires_grad == ox.is_grad_enabled()
    return ox.is_grad_enabled()


def test_context_managers_nest() -> None:
    with ox.no_grad():
        assert not tracks()
        with ox.enable_grad():
            assert tracks()
            with ox.set_grad_enabled(False):
                assert not tracks()
            assert tracks()
        assert not tracks()
    assert tracks()


def test_an_error_puts_the_mode_back() -> None:
    with pytest.raises(ZeroDivisionError), ox.no_grad():
        _ = 1 / 0
    assert tracks()


@pytest.mark.parametrize("decorator", [ox.no_grad(), ox.no_grad, ox.inference_mode()])
def test_decorators(decorator: Any) -> None:
    @decorator
    def function(depth: int) -> list[bool]:
        """Doc."""
        return [tracks(), *(function(depth - 1) if depth else [])]

    assert function.__name__ == "function"
    assert function(2) == [False] * 3
    assert tracks()


def test_a_generator_is_switched_only_while_it_runs() -> None:
    @ox.no_grad()
    def generator() -> Iterator[Any]:
        try:
            got = yield tracks()
        except KeyError:
            got = yield "caught"
        yield got, tracks()

    running = generator()
    assert next(running) is False
    assert tracks()
    assert running.throw(KeyError()) == "caught"
    assert running.send("sent") == ("sent", False)
    assert tracks()
    assert list(generator()) == [False, (None, False)]


def test_set_grad_enabled_acts_at_once() -> None:
    ox.set_grad_enabled(False)
    try:
        assert not tracks()
    finally:
        ox.set_grad_enabled(True)
    assert tracks()

    @ox.set_grad_enabled(False)
    def function() -> bool:
        return tracks()

    assert tracks()
    assert not function()


def test_inference_mode() -> None:
    with ox.inference_mode():
        assert is_inference_mode_enabled()
        assert not tracks()
        with pytest.raises(GradientError, match="inference_mode"):
            ox.ones(1).requires_grad_()
        with ox.inference_mode(False):
            assert tracks()
    assert not is_inference_mode_enabled()


def test_each_thread_has_its_own_mode() -> None:
    seen: dict[str, bool] = {}
    inside, outside = threading.Event(), threading.Event()

    def other() -> None:
        seen["start"] = tracks()
        with ox.no_grad():
            seen["own"] = tracks()
            inside.set()
            outside.wait(120)
        seen["end"] = tracks()

    with ox.no_grad():
        thread = threading.Thread(target=other)
        thread.start()
        inside.wait(120)
        with ox.enable_grad():
            seen["main"] = tracks()
        outside.set()
        thread.join()
        assert not tracks()
    assert seen == {"start": True, "own": False, "main": True, "end": True}


def test_backward_in_threads() -> None:
    """Each thread its own graph over one shared leaf's values."""
    w = ox.ones(4)
    found: list[Any] = [None] * 4

    def step(k: int) -> None:
        mine = w.clone().requires_grad_()
        for _ in range(50):
            (mine * (k + 1)).tanh().sum().backward()
        found[k] = mine.grad.tolist()

    threads = [threading.Thread(target=step, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(4):
        one = ox.ones(4, requires_grad=True)
        (one * (k + 1)).tanh().sum().backward()
        assert found[k] == pytest.approx((one.grad * 50).tolist(), rel=1e-5)
