"""Loads that are watched: said, ended, given up."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
from manual_clock import START_S, ManualClock
from onnx import TensorProto
from waiting import wait_for_work

from ox.errors import LoadError, ServeError
from ox.serve import ModelConfig, RequestLimits
from ox.serve.repository.loading import Cancelled
from ox.serve.repository.model import Model
from ox.serve.repository.watchdog import AT_ONCE, GRACE_S, REPORT_S, SLOW_S, Watchdog
from ox.serve.runtime.load_control import LoadControl

F = TensorProto.FLOAT
ENDS: tuple[Any, Any] = ({"x": (F, ["batch", 4])}, {"y": (F, ["batch", 4])})


def threads_of(what: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == f"ox-load {what}"]


def join(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()


@pytest.fixture
def said() -> SimpleQueue[str]:
    return SimpleQueue()


@pytest.fixture
def watchdog(said: SimpleQueue[str]) -> Watchdog[Any]:
    return Watchdog(said.put)


@contextmanager
def busy(watchdog: Watchdog[Any]) -> Iterator[None]:
    """While loads take all turns."""
    begun, go, clock = threading.Barrier(AT_ONCE + 1), threading.Event(), ManualClock()

    def load() -> None:
        begun.wait(120)
        go.wait(120)

    threads = [threading.Thread(target=watchdog.run, args=(load, LoadControl("b", 60, clock))) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    begun.wait(120)
    try:
        yield
    finally:
        go.set()
        join(*threads)


def test_what_comes_of_it(watchdog: Watchdog[Any], said: SimpleQueue[str]) -> None:
    assert watchdog.run(lambda: 5, LoadControl("m", 60, ManualClock())) == 5
    with pytest.raises(ZeroDivisionError):
        watchdog.run(lambda: 1 // 0, LoadControl("m", 60, ManualClock()))
    join(*threads_of("m"))
    assert said.empty()


def test_it_says_what_goes_on(watchdog: Watchdog[Any], said: SimpleQueue[str]) -> None:
    """Again and again, each time after twice as long."""
    clock = ManualClock()
    control = LoadControl("version 1 of 'm'", 60, clock)
    lines = []

    def load() -> None:
        control.enter("trial run of one sample")
        for seconds in (REPORT_S, REPORT_S, 2 * REPORT_S):
            clock.until_waiting()
            clock.advance(seconds)
            lines.append(said.get(timeout=120))
        clock.until_waiting()  # no more is due

    watchdog.run(load, control)
    assert lines == [f"loading version 1 of 'm': trial run of one sample, {n} s so far" for n in (1, 2, 4)]
    assert said.empty()


@pytest.mark.parametrize("ears", [True, False])
def test_the_limit(watchdog: Watchdog[Any], ears: bool) -> None:
    """What listens ends at once; what does not is left alone after a while."""
    clock, told, go = ManualClock(), threading.Event(), threading.Event()
    control = LoadControl("m", 0.5, clock)

    def load() -> None:
        control.add_stop(told.set)
        control.enter("a long way")
        clock.until_waiting()
        clock.advance(0.5)
        assert told.wait(120)
        if not ears:
            clock.until_waiting()
            clock.advance(GRACE_S)
            go.wait(120)

    with pytest.raises(LoadError, match="m takes too long to load") as caught:
        watchdog.run(load, control)
    assert caught.value.expected == "at most 0.5 s (load_timeout_s)"
    assert "a long way, 0 s so far" in str(caught.value.got)
    assert clock.now() == START_S + 0.5 + (0 if ears else GRACE_S)
    assert ears or threads_of("m")
    go.set()
    join(*threads_of("m"))


def test_a_reason_to_end_it(watchdog: Watchdog[Any]) -> None:
    control, told = LoadControl("m", 60, ManualClock()), threading.Event()
    control.add_stop(told.set)
    other = threading.Thread(target=control.end, args=(Cancelled("its files have changed"),))

    def load() -> None:
        other.start()
        told.wait(120)

    with pytest.raises(Cancelled, match="its files have changed"):
        watchdog.run(load, control)
    control.end(LoadError("another reason"))
    with pytest.raises(Cancelled, match="its files have changed"):  # the first one counts
        control.enter("more")
    late = threading.Event()
    control.add_stop(late.set)
    assert late.is_set()


def test_what_is_ready_too_late_is_not_taken(watchdog: Watchdog[Any]) -> None:
    control = LoadControl("m", 60)

    def load() -> str:
        control.end(Cancelled("nobody wants it"))
        return "a model"

    with pytest.raises(Cancelled):
        watchdog.run(load, control)


def test_slow_ones_do_not_hold_up_the_others(watchdog: Watchdog[Any]) -> None:
    clock, go = ManualClock(), threading.Event()
    slow = [
        threading.Thread(target=watchdog.run, args=(lambda: go.wait(120), LoadControl("slow", 60, clock)))
        for _ in range(5)
    ]
    for thread in slow:
        thread.start()
    for begun in (2, 4, 5):
        clock.until_waiting(begun)
        clock.advance(SLOW_S)
    assert watchdog.run(lambda: 7, LoadControl("quick", 60, clock)) == 7
    go.set()
    join(*slow)
    with busy(watchdog):  # there are as many turns as before
        assert watchdog._free_slots == 0


def test_one_that_waits_for_its_turn_can_be_ended(watchdog: Watchdog[Any]) -> None:
    control = LoadControl("m", 60, ManualClock())
    with busy(watchdog):
        assert control.progress().startswith("waiting for its turn")
        control.end(Cancelled("gone"))
        with pytest.raises(Cancelled):
            watchdog.run(lambda: 1, control)


@pytest.fixture
def endless(build: Any, loop_body: Any) -> Path:
    nodes = [("Loop", ["", "go", "x"], ["y"], {"body": loop_body})]
    return Path(build("endless", nodes, *ENDS, {"go": np.array(True)}))


def test_a_trial_run_that_never_ends(watchdog: Watchdog[Any], endless: Path) -> None:
    """In this process: ONNX Runtime ends it between two turns of the loop."""
    clock = ManualClock()
    works = threading.Event()

    class Control(LoadControl):
        def enter(self, stage: str) -> None:
            super().enter(stage)
            if stage == "trial run of one sample":
                works.set()

    control = Control("endless", 60, clock)

    def pass_time() -> None:
        """Once the loop runs."""
        assert works.wait(120)
        wait_for_work(*threads_of("endless"))
        clock.advance(60)

    passing = threading.Thread(target=pass_time)
    passing.start()
    with pytest.raises(LoadError, match="takes too long") as caught:
        watchdog.run(partial(Model, endless, ModelConfig("cpu"), RequestLimits(), control=control), control)
    assert "trial run of one sample" in str(caught.value.got)
    join(passing, *threads_of("endless"))


@pytest.mark.parametrize("stage", ["session", "golden", "proof", "measure", "padding"])
def test_every_run_at_the_load_can_be_ended(mlp: Path, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    """Whatever the load is at: nothing of it takes a run that was ended for the answer of a model."""
    from ox.serve.repository import model as load
    from ox.serve.runtime.session import Engine

    control = LoadControl("mlp", 60)
    target = {"session": (Engine, "__init__"), "golden": (load, "check_golden"), "proof": (load, "fit"),
              "measure": (load, "fit"), "padding": (load, "Signature")}[stage]  # fmt: skip
    real = getattr(*target)

    def ended(*arguments: Any, **named: Any) -> Any:
        if stage != "measure":
            control.end(Cancelled("now"))
            return real(*arguments, **named)
        found = dataclasses.replace(real(*arguments, **named), bound=4)  # runs over buffers raise errors of their own
        control.end(Cancelled("now"))
        return found

    monkeypatch.setattr(*target, ended)
    with pytest.raises((Cancelled, ServeError)):
        Model(mlp, ModelConfig("cpu"), RequestLimits(), control=control)
    assert isinstance(control.error, Cancelled)


def test_an_end_after_the_load_ends_no_run(mlp: Path) -> None:
    """Not those that the event loop makes itself, nor those of the instances, which have no control of their own."""
    control = LoadControl("mlp", 60)
    model = Model(mlp, ModelConfig("cpu"), RequestLimits(), control=control)
    row = model.proof.row
    assert row is not None
    control.end(Cancelled("its files have changed"))
    assert model.engine.instance(0, model.fit.bound)((row,)) and model.engine.instance(0)((row,))


def test_an_end_before_the_load_is_complete_counts(mlp: Path) -> None:
    control = LoadControl("mlp", 60)
    engine = Model(mlp, ModelConfig("cpu"), RequestLimits(), control=LoadControl()).engine
    engine.loading = control
    control.add_stop(engine._stop)
    control.end(Cancelled("now"))
    with pytest.raises(Cancelled, match="now"):
        engine.end_load()


def test_who_waits_for_a_turn_sleeps(watchdog: Watchdog[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Until there is one, or the load is ended: nobody looks again and again."""
    ended, taken = LoadControl("ended", 60, ManualClock()), LoadControl("taken", 60, ManualClock())
    limits, outcome = SimpleQueue[float | None](), SimpleQueue[Any]()
    real = watchdog._condition.wait_for

    def wait_for(predicate: Any, limit: float | None = None) -> Any:
        limits.put(limit)
        return real(predicate, limit)

    def wait(control: LoadControl) -> None:
        try:
            outcome.put(watchdog.run(lambda: 7, control))
        except Cancelled as error:
            outcome.put(str(error))

    with busy(watchdog):
        monkeypatch.setattr(watchdog._condition, "wait_for", wait_for)
        waiting = [threading.Thread(target=wait, args=(control,)) for control in (ended, taken)]
        for thread in waiting:
            thread.start()
        assert [limits.get(timeout=120) for _ in waiting] == [None, None]
        ended.end(Cancelled("gone"))
        assert outcome.get(timeout=120) == "gone"
    assert outcome.get(timeout=120) == 7 and limits.empty()
    join(*waiting)
