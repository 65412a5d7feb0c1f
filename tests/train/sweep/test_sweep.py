"""Sweeps with Optuna: trials, pruning, and going on after a stop."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import ox
from ox.errors import ArgumentError, LoadError, TrainError
from ox.train.sweep import Sweep, sweep
from ox_cli.main import main

pytestmark = pytest.mark.skipif(
    find_spec("optuna") is None, reason='Optuna is not installed: pip install "ox-onnx[sweep]"'
)

RECIPE = '''
"""One weight that should become 3."""

import ox
from ox import nn
from ox.data import TensorDataset

defaults = {"epochs": 3, "batch_size": 8, "lr": 0.1}
loss = nn.MSELoss()


def data():
    x = ox.arange(32).reshape(32, 1) / 32
    part = TensorDataset(x, 3 * x)
    return part, part


def model():
    layer = nn.Linear(1, 1, bias=False)
    layer.weight.data.fill_(0)
    return layer


def optimizer(model, lr):
    return ox.optim.SGD(model.parameters(), lr=lr)
'''


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    path = tmp_path / "weight.py"
    path.write_text(RECIPE)
    return str(path)


@pytest.fixture
def made(recipe: str, tmp_path: Path) -> Sweep:
    return Sweep.create(recipe, ["lr=1e-3,0.3,100"], "loss", 0, tmp_path / "sweeps")


def test_the_best_trial(made: Sweep) -> None:
    """A learning rate of 100 diverges, that of 0.001 is too small."""
    shown: list[Any] = []
    trials = made.run(8, shown.append)
    assert trials == shown and len(trials) == 8
    best = made.best(trials)
    assert best is not None and best.options == {"lr": 0.3} and best.state == "complete" and best.epochs == 3
    found, model = ox.train.restore(best.folder)
    assert found.name == "weight" and abs(model.weight.item() - 3) < 1
    assert best.value == min(row["validation_loss"] for row in history(best.folder))
    states = {trial.options["lr"]: trial.state for trial in trials}
    assert states[100] == "failed"
    assert {trial.state for trial in trials if trial.error} == {"failed"}
    assert any("loss is" in trial.error for trial in trials)
    assert made.trials() == trials


def history(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ox.load(folder / "checkpoints" / "last.safetensors")["progress"]["history"]
    return rows


def test_bad_trials_are_pruned(recipe: str, tmp_path: Path) -> None:
    """After the first trials, those worse than their median end after an epoch."""
    made = Sweep.create(recipe, ["lr=1e-6..0.5"], "loss", 1, tmp_path)
    trials = made.run(12)
    pruned = [trial for trial in trials if trial.state == "pruned"]
    assert pruned and all(trial.epochs < 3 for trial in pruned)
    assert all(trial.state == "complete" and trial.epochs == 3 for trial in trials[: sweep.UNPRUNED])
    best = made.best(trials)
    assert best is not None and all((best.value or 0) <= (trial.value or 0) for trial in pruned)


def test_a_stopped_sweep_goes_on(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial that was stopped is continued in its folder with its options, and not repeated."""
    made = Sweep.create(recipe, ["lr=0.1..0.3"], "loss", 0, tmp_path / "sweeps")

    class Stop(BaseException):
        pass

    real = sweep.run_trial
    calls: list[Path] = []

    def stopped(recipe: Any, options: Any, folder: Path, on_epoch: Any) -> Any:
        def once(rows: Any) -> None:
            on_epoch(rows)
            if len(calls) == 2 and len(rows) == 2:
                raise Stop

        calls.append(folder)
        return real(recipe, options, folder, once)

    monkeypatch.setattr(sweep, "run_trial", stopped)
    with pytest.raises(Stop):
        made.run(3)
    again = Sweep.find(made.folder)
    assert again == made and len(again.trials()) == 1
    trials = again.run(3)
    assert [path.name for path in calls] == ["trial-0000", "trial-0001", "trial-0001", "trial-0003"]
    assert [trial.folder.name for trial in trials] == ["trial-0000", "trial-0001", "trial-0003"]
    assert len(history(trials[1].folder)) == trials[1].epochs == 3


def test_mistakes(made: Sweep, recipe: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no metric 'f1'"):
        Sweep.create(recipe, ["lr=1,2"], "f1", 0, tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(LoadError, match="no sweep"):
        Sweep.find(tmp_path)
    (made.folder / "trial-0000").mkdir()
    with pytest.raises(TrainError, match="by Ray Tune"):
        made.run(1)
    with pytest.raises(ArgumentError, match="give no accuracy"):
        Sweep.create(recipe, ["lr=0.1"], "accuracy", 0, tmp_path / "accuracy").run(1)


def test_a_resumed_sweep_keeps_its_number_of_trials(
    recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = Sweep.create(recipe, ["lr=0.2,0.3", "epochs=1"], "loss", 0, tmp_path, 1)
    again = ["sweep", "--resume", str(sweep.folder)]
    for more, count in (([], 1), (["--trials", "2"], 2), ([], 2)):
        assert main([*again, *more]) == 0
        assert f": {count} trials of" in capsys.readouterr().out
        assert len(list(sweep.folder.glob("trial-*"))) == Sweep.find(sweep.folder).count == count


def test_the_command(recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", recipe, "lr=0.2,0.3", "--metric", "loss", "--trials", "2", "--out", str(tmp_path / "sweeps")]
    assert main(words) == 0
    out = capsys.readouterr().out
    (best,) = re.findall(r"^best: (\S+) · loss", out, re.M)
    assert (Path(best) / "checkpoints" / "best.safetensors").is_file()
    assert f"next: ox export model.onnx --run {best}" in out
    assert main(["sweep", "--resume", str(Path(best).parent), "--trials", "3"]) == 0
    assert len(list(Path(best).parent.glob("trial-*"))) == 3
    assert main(["sweep", "--resume", str(Path(best).parent), "--metric", "loss"]) == 2
    assert main(["sweep"]) == 2
