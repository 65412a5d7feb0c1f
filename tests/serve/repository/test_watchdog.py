"""Loads that are watched: said, ended, given up."""

from __future__ import annotations

import dataclasses
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from ox.errors import LoadError, ServeError
from ox.serve import ModelConfig, RequestLimits
from ox.serve.repository import watchdog as module
from ox.serve.repository.loading import Cancelled
from ox.serve.repository.model import Model
from ox.serve.repository.watchdog import AT_ONCE, Watchdog
from ox.serve.runtime.load_control import LoadControl

F = TensorProto.FLOAT
ENDS: tuple[Any, Any] = ({"x": (F, ["batch", 4])}, {"y": (F, ["batch", 4])})


def alive(what: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == f"ox-load {what}"]


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def watchdog(said: list[str]) -> Watchdog[Any]:
    return Watchdog(said.append)


def test_what_comes_of_it(watchdog: Watchdog[Any], said: list[str]) -> None:
    assert watchdog.run(lambda: 5, LoadControl("m", 60)) == 5
    with pytest.raises(ZeroDivisionError):
        watchdog.run(lambda: 1 // 0, LoadControl("m", 60))
    assert said == [] and not alive("m")


def test_it_says_what_goes_on(watchdog: Watchdog[Any], said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Again and again, each time after twice as long."""
    monkeypatch.setattr(module, "SAY_S", 0.05)
    control = LoadControl("version 1 of 'm'", 60)

    def load() -> None:
        control.enter("trial run of one sample")
        while len(said) < 3:
            threading.Event().wait(0.01)

    watchdog.run(load, control)
    assert said[0] == "loading version 1 of 'm': trial run of one sample, 0 s so far" and len(said) == 3


@pytest.mark.parametrize("ears", [True, False])
def test_the_limit(watchdog: Watchdog[Any], monkeypatch: pytest.MonkeyPatch, ears: bool) -> None:
    """What listens ends at once; what does not is left alone after a while."""
    monkeypatch.setattr(module, "GRACE_S", 0.1)
    told, go = threading.Event(), threading.Event()
    control = LoadControl("m", 0.1)

    def load() -> None:
        control.add_stop(told.set)
        control.enter("a long way")
        (told if ears else go).wait(60)

    with pytest.raises(LoadError, match="m takes too long to load") as caught:
        watchdog.run(load, control)
    assert caught.value.expected == "at most 0.1 s (load_timeout_s)" and "a long way, 0 s so far" in str(
        caught.value.got
    )
    assert told.is_set() and bool(alive("m")) is not ears
    go.set()
    for thread in alive("m"):
        thread.join(60)


def test_a_reason_to_end_it(watchdog: Watchdog[Any]) -> None:
    control, told = LoadControl("m", 60), threading.Event()
    control.add_stop(told.set)
    threading.Timer(0.05, lambda: control.end(Cancelled("its files have changed"))).start()
    with pytest.raises(Cancelled, match="its files have changed"):
        watchdog.run(lambda: told.wait(60), control)
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


def test_slow_ones_do_not_hold_up_the_others(watchdog: Watchdog[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLOW_S", 0.05)
    go = threading.Event()
    slow = [
        threading.Thread(target=watchdog.run, args=(lambda: go.wait(60), LoadControl("slow", 60))) for _ in range(5)
    ]
    for thread in slow:
        thread.start()
    assert watchdog.run(lambda: 7, LoadControl("quick", 60)) == 7
    go.set()
    for thread in slow:
        thread.join(60)
    both = threading.Barrier(AT_ONCE + 1)  # as many turns as before
    quick = [
        threading.Thread(target=watchdog.run, args=(lambda: both.wait(60), LoadControl("m", 60))) for _ in range(2)
    ]
    for thread in quick:
        thread.start()
    both.wait(60)
    for thread in quick:
        thread.join(60)


def test_one_that_waits_for_its_turn_can_be_ended(watchdog: Watchdog[Any]) -> None:
    go, control = threading.Event(), LoadControl("m", 60)
    busy = [threading.Thread(target=watchdog.run, args=(lambda: go.wait(60), LoadControl("b", 60))) for _ in range(2)]
    for thread in busy:
        thread.start()
    while len(alive("b")) < AT_ONCE:
        threading.Event().wait(0.01)
    assert control.progress().startswith("waiting for its turn")
    control.end(Cancelled("gone"))
    with pytest.raises(Cancelled):
        watchdog.run(lambda: 1, control)
    go.set()
    for thread in busy:
        thread.join(60)


@pytest.fixture
def endless(build: Any, loop_body: Any) -> Path:
    nodes = [("Loop", ["", "go", "x"], ["y"], {"body": loop_body})]
    return Path(build("endless", nodes, *ENDS, {"go": np.array(True)}))


def test_a_trial_run_that_never_ends(watchdog: Watchdog[Any], endless: Path) -> None:
    """In this process: ONNX Runtime ends it between two turns of the loop."""
    control = LoadControl("endless", 1)
    with pytest.raises(LoadError, match="takes too long") as caught:
        watchdog.run(partial(Model, endless, ModelConfig("cpu"), RequestLimits(), control=control), control)
    assert "trial run of one sample" in str(caught.value.got)
    for thread in alive("endless"):  # a busy machine may need longer than the grace
        thread.join(60)
    assert not alive("endless")


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


def test_who_waits_for_a_turn_sleeps(watchdog: Watchdog[Any]) -> None:
    """Until there is one, or the load is ended."""

    class Counting(LoadControl):
        looks = 0

        def check(self) -> None:
            self.looks += 1
            super().check()

    go, outcome = threading.Event(), list[Any]()
    busy = [threading.Thread(target=watchdog.run, args=(lambda: go.wait(60), LoadControl("b", 60))) for _ in range(2)]
    for thread in busy:
        thread.start()
    while len(alive("b")) < AT_ONCE:
        threading.Event().wait(0.01)
    ended, taken = Counting("ended", 60), Counting("taken", 60)

    def wait(control: LoadControl) -> None:
        try:
            outcome.append(watchdog.run(lambda: 7, control))
        except Cancelled as error:
            outcome.append(str(error))

    waiting = [threading.Thread(target=wait, args=(control,)) for control in (ended, taken)]
    for thread in waiting:
        thread.start()
    threading.Event().wait(0.5)
    assert ended.looks == taken.looks == 0  # nobody looks again and again
    ended.end(Cancelled("gone"))
    waiting[0].join(60)
    assert outcome == ["gone"]
    go.set()
    waiting[1].join(60)
    assert outcome == ["gone", 7]
    for thread in busy:
        thread.join(60)
