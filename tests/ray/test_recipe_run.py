"""`ox train --ray`: what the driver leaves when it is killed, and what workers print and leave."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import ox
from ox import nn, temporary_files
from ox.errors import TrainError
from ox.train import Trainer
from ox.train.run import run as runs

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason='Ray is not installed: pip install "ox-onnx[ray]"')


def test_a_killed_driver_leaves_the_number_of_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`resume` starts as many, also where no worker has written anything to the run folder."""
    from ox.ray import recipe_run

    class Killed(BaseException):
        pass

    started: list[int] = []

    def killed(run: runs.Run, recipe: object, options: object, address: str, nproc: int, restarts: int) -> runs.Run:
        started.append(nproc)
        (run.folder / recipe_run.STORAGE).mkdir(exist_ok=True)
        raise Killed

    monkeypatch.setattr(recipe_run, "connect", lambda address: None)
    monkeypatch.setattr(recipe_run, "_check_cpus", lambda address, needed: None)
    monkeypatch.setattr(recipe_run, "_run", killed)
    with pytest.raises(Killed):
        recipe_run.train("digits", "local", out=tmp_path, nproc=2, epochs=1)
    with pytest.raises(Killed):
        recipe_run.resume(tmp_path / "digits-0001", "local")
    assert started == [2, 2]


def test_why_the_workers_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank with its reason, also where Ray gives no traceback, but kills a worker that needs too much memory."""
    from ray.exceptions import ActorDiedError, OutOfMemoryError
    from ray.train import WorkerGroupError
    from ray.train.v2._internal.exceptions import UserExceptionWithTraceback, WorkerHealthCheckFailedError

    from ox.ray import recipe_run

    def fit(trainer: object) -> None:
        failures: dict[int, Exception] = {
            2: WorkerHealthCheckFailedError("A worker health check failed.", ActorDiedError()),
            1: WorkerHealthCheckFailedError("A worker health check failed.", OutOfMemoryError("2 were killed\nmore")),
            0: UserExceptionWithTraceback(ValueError("no"), "Traceback:\n  line 1\nValueError: no\n"),
        }
        raise WorkerGroupError("[Rank 1 Error Snippet]:\n...", failures)

    monkeypatch.setattr(recipe_run, "connect", lambda address: None)
    monkeypatch.setattr(recipe_run, "_check_cpus", lambda address, needed: None)
    monkeypatch.setattr("ox.ray.trainer.OxTrainer.fit", fit)
    with pytest.raises(TrainError, match="the workers failed") as caught:
        recipe_run.train("digits", "local", out=tmp_path, nproc=3, epochs=1)
    first, second, third = str(caught.value.got).split("; ")
    assert first == "rank 0: ValueError: no" and second == "rank 1: OutOfMemoryError: 2 were killed"
    assert third.startswith("rank 2: its process has ended") and "memory" in third
    assert "--resume" in str(caught.value.hint)


def test_a_worker_prints_the_folder_of_the_driver(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its own folder is gone when somebody reads the line."""
    from ox.ray.recipe_run import WorkerTerminal

    points = ox.randn(20, 2)
    trainer = Trainer(nn.Linear(2, 1), nn.MSELoss(), None, (points, points[:, :1]), epochs=1)
    trainer.fit(tmp_path / "of-the-worker", show=WorkerTerminal(Path("runs/mine-0001")))
    shown = capsys.readouterr().out
    assert "run runs/mine-0001" in shown and "curves runs/mine-0001/curves.png" in shown
    assert "of-the-worker" not in shown


def test_folders_of_killed_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ox.ray.checkpoints import FOLDER, remove_left_folders

    code = f"import os; from ox import temporary_files as t; t.new_folder({FOLDER!r}); os.kill(os.getpid(), 9)"
    path = os.pathsep.join(filter(None, sys.path))
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": path})
    (left,) = tmp_path.iterdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with temporary_files.folder("other-") as other:
        remove_left_folders()
        assert not left.exists() and other.exists()
        with temporary_files.folder(FOLDER) as mine:
            remove_left_folders()
            assert mine.exists()
