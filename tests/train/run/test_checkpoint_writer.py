"""Checkpoints in the background: copied at once, written one at a time, durable in the right order, errors told."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

import ox
from ox import train
from ox.errors import LoadError, TrainError
from ox.train.run import checkpoint, checkpoint_writer
from ox.train.run.run import Run, create
from ox.train.run.snapshot import Snapshot, size

PARTS = dict.fromkeys(("model", "optimizer", "scheduler", "random", "loader", "progress", "ema"))


@pytest.fixture
def run(page: Path, tmp_path: Path) -> Run:
    recipe = train.load(page)
    return create(recipe, train.TrainConfig.from_defaults(recipe.defaults), tmp_path / "runs")


def state(value: float, **more: object) -> dict[str, object]:
    return {**PARTS, "model": {"w": ox.full((3,), value)}, **more}


def held(run: Run) -> list[float]:
    return checkpoint.load(run.last)["model"]["w"].tolist()


class Slow:
    """Stands before `checkpoint.save`: each write waits until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.real, self.go, self.begun = checkpoint.save, threading.Event(), threading.Event()
        monkeypatch.setattr(checkpoint, "save", self)

    def __call__(self, *arguments: object, **named: object) -> None:
        self.begun.set()
        assert self.go.wait(120)
        self.real(*arguments, **named)


def test_what_changes_afterwards_is_not_written(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, given = Slow(monkeypatch), state(1.0)
    with checkpoint_writer.Checkpoints(run) as folder:
        assert folder.save(given)
        given["model"]["w"].array[:] = 7.0
        slow.go.set()
    assert held(run) == [1.0] * 3


def test_one_is_written_at_a_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(monkeypatch)
    with checkpoint_writer.Checkpoints(run) as folder:
        assert folder.save(state(1.0))
        assert not folder.save(state(2.0), wait=False)  # left out
        threading.Timer(0.05, slow.go.set).start()
        assert folder.save(state(3.0))  # waits for the first
        assert held(run)[0] in (1.0, 3.0)
        folder.wait()
        assert held(run) == [3.0] * 3
        assert folder.save(state(4.0), wait=False)
    assert held(run) == [4.0] * 3


def test_a_copy_costs_no_new_memory() -> None:
    snapshot = Snapshot()
    given = {"a": ox.ones(3), "b": [np.ones(4), (1, "x", None)], 3: {"c": ox.ones(2, dtype=ox.bfloat16)}}
    one = snapshot.take(given)
    assert one["a"].array is not given["a"].array
    assert one["b"][1] == (1, "x", None)
    assert str(one[3]["c"].array.dtype) == "bfloat16"
    given["a"].array[:] = 5
    two = snapshot.take(given)
    assert two["a"].array is one["a"].array
    assert two["b"][0] is one["b"][0]
    assert two["a"].tolist() == [5.0] * 3
    assert snapshot.take({"a": ox.ones(4)})["a"].shape == (4,)
    assert size(given) == 12 + 32 + 4


@pytest.mark.parametrize("when", ["save", "wait", "exit"])
def test_an_error_is_told_at_the_next_call(run: Run, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    def full(*_: object, **__: object) -> None:
        raise TrainError("full")

    real = checkpoint.save
    with pytest.raises(TrainError, match="full"), checkpoint_writer.Checkpoints(run) as folder:
        folder.save(state(1.0))
        folder.wait()
        monkeypatch.setattr(checkpoint, "save", full)
        folder.save(state(2.0))
        if when == "save":
            folder.save(state(3.0))
        elif when == "wait":
            folder.wait()
    monkeypatch.setattr(checkpoint, "save", real)
    assert held(run) == [1.0] * 3


def test_what_went_wrong_first_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise TrainError("full")

    monkeypatch.setattr(checkpoint, "save", full)
    with pytest.raises(KeyError, match="first"), checkpoint_writer.Checkpoints(run) as folder:
        folder.save(state(1.0))
        raise KeyError("first")
    assert not [t for t in threading.enumerate() if t.name == "ox checkpoint"]


def test_memory_keeps_the_best_weights() -> None:
    memory, given = checkpoint_writer.CheckpointWriter(), state(1.0)
    memory.save(given, best=True)
    given["model"]["w"].array[:] = 2.0
    memory.save(given)
    assert memory.best()["model"]["w"].tolist() == [1.0] * 3


def test_it_is_durable_before_it_has_its_name(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """File, name, folder: each safe on disk before the next; `last` before `best`."""
    calls: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(handle: int) -> None:
        calls.append(("fsync", Path(os.readlink(f"/proc/self/fd/{handle}")).name))
        fsync(handle)

    def noted_replace(source: str, target: str) -> None:
        calls.append(("name", Path(target).name))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    checkpoint.save(run, state(1.0), best=True)
    kinds = [(kind, name if kind == "name" or name == "checkpoints" else "file") for kind, name in calls]
    assert kinds == [
        ("fsync", "file"), ("name", "last.safetensors"), ("fsync", "checkpoints"),
        ("fsync", "file"), ("name", "best.safetensors"), ("fsync", "checkpoints"),
    ]  # fmt: skip
    assert [name.split(".")[1] for kind, name in calls if kind == "fsync" and name != "checkpoints"] == ["last", "best"]


def test_checkpoints_of_before(run: Run) -> None:
    """Format 1 had no averages and no scaler; a format of the future is refused."""
    from ox.serialization import files

    old = {name: part for name, part in state(1.0).items() if name != "ema"}
    files.save({"format": 1, **old}, run.last)
    assert held(run) == [1.0] * 3
    files.save({"format": 4, **old}, run.last)
    with pytest.raises(LoadError, match="not a checkpoint of a run"):
        held(run)


def test_a_loop_of_ones_own(tmp_path: Path) -> None:
    """Whatever it saves comes back; what a killed process left is found again."""
    with train.Checkpoints(tmp_path / "mine") as checkpoints:
        assert checkpoints.last() is None
        checkpoints.save({"model": {"w": ox.ones(2)}, "epoch": 1}, best=True)
        checkpoints.save({"model": {"w": ox.zeros(2)}, "epoch": 2})
    again = train.Checkpoints(tmp_path / "mine")
    last = again.last()
    assert last is not None
    assert (last["epoch"], last["model"]["w"].tolist()) == (2, [0.0, 0.0])
    assert again.best()["epoch"] == 1
