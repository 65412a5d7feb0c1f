"""ox.futures, beside PyTorch's documentation of torch.futures."""

from __future__ import annotations

import threading

import pytest

from ox.errors import ArgumentError
from ox.futures import Future, collect_all, wait_all


def test_a_value_its_functions_and_callbacks() -> None:
    future: Future[int] = Future()
    seen: list[int] = []
    double = future.then(lambda f: f.value() * 2)
    text = double.then(lambda f: str(f.wait()))
    future.add_done_callback(lambda f: seen.append(f.value()))
    assert not future.done() and not text.done() and seen == []
    with pytest.raises(ArgumentError, match="no value yet"):
        future.value()
    future.set_result(21)
    future.add_done_callback(lambda f: seen.append(-f.value()))
    assert text.done() and text.wait() == "42" and double.value() == 42 and seen == [21, -21]
    with pytest.raises(ArgumentError, match="one value"):
        future.set_result(3)
    assert [f.value() for f in collect_all([future, double]).wait()] == [21, 42] == wait_all([future, double])


def test_exceptions_arrive_where_the_value_is_asked_for() -> None:
    future: Future[int] = Future()
    after = future.then(lambda f: f.value() + 1)
    handled = future.then(lambda f: 7 if f.done() else 0)
    future.set_exception(KeyError("x"))
    for failed in (future, after):
        with pytest.raises(KeyError):
            failed.wait()
        with pytest.raises(KeyError):
            failed.value()
    assert handled.wait() == 7 and collect_all([future]).wait() == [future]
    with pytest.raises(ArgumentError, match="an exception"):
        Future().set_exception("x")  # type: ignore[arg-type]


def test_wait_waits_for_another_thread() -> None:
    future: Future[int] = Future()
    thread = threading.Thread(target=future.set_result, args=(5,))
    child = future.then(lambda f: f.value() + 1)
    thread.start()
    assert child.wait() == 6
    thread.join()
