"""What a run leaves behind, and the ways in which it cannot."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

import ox
from ox import train
from ox.errors import LoadError, OxError, TrainError


def test_the_folder_of_a_run(page: Path, tmp_path: Path) -> None:
    run = train.train(page, out=tmp_path / "runs", epochs=2, limit=40)
    assert {p.name for p in run.folder.iterdir()} - {p.name for p in run.folder.glob("events*")} == {
        "config.toml", "recipe.py", "data.json", "metrics.jsonl", "curves.png", "result.json", "checkpoints",
    }  # fmt: skip
    assert list(run.folder.glob("events*"))
    assert sorted(p.stem for p in run.last.parent.iterdir()) == ["best", "last", "last-1"]

    config = tomllib.loads((run.folder / "config.toml").read_text())
    assert config["recipe"] == {"name": "points", "source": str(page), "sha256": train.load(page).sha256}
    assert config["options"]["limit"] == 40
    assert config["versions"]["ox"] == ox.__version__
    assert config["machine"]["threads"] >= 1
    assert "numpy" in config["machine"]["executors"]
    assert (run.folder / "recipe.py").read_text() == page.read_text()

    lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    epochs = [line for line in lines if "validation_loss" in line]
    steps = [line for line in lines if "validation_loss" not in line]
    assert [line["epoch"] for line in epochs] == [1, 2]
    assert [line["step"] for line in steps] == [1, 2, 3, 4, 5, 6]
    assert run.result["best"] in [dict(line) for line in epochs]
    assert run.result["held_back"]["count"] == 32


def test_runs_are_numbered_on(page: Path, tmp_path: Path) -> None:
    names = [train.train(page, out=tmp_path, epochs=1).name for _ in range(2)]
    assert names == ["points-0001", "points-0002"]
    (tmp_path / "points-0041").mkdir()
    assert train.train(page, out=tmp_path, epochs=1).name == "points-0042"


def test_restore_gives_the_best_weights_in_eval_mode(page: Path, tmp_path: Path) -> None:
    run = train.train(page, out=tmp_path)
    recipe, model = train.restore(run.folder)
    assert recipe.name == "points"
    assert not model.training
    held_back = recipe.data().held_back
    points = np.stack([held_back[i][0].numpy() for i in range(len(held_back))])
    sides = np.array([held_back[i][1].item() for i in range(len(held_back))])
    with ox.no_grad():
        right = (model(ox.tensor(points)).numpy().argmax(1) == sides).sum()
    assert right == run.result["held_back"]["correct"]


def test_the_newest_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LoadError, match="no trained run"):
        train.newest_run(tmp_path)
    made = [train.train(page, out=tmp_path, epochs=1) for _ in range(2)]
    (tmp_path / "points-0009").mkdir()
    assert train.newest_run(tmp_path).folder == made[1].folder
    (tmp_path / "runs").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert train.restore()[0].name == "points"


def test_a_folder_that_cannot_be_made(page: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(TrainError, match="no run can be made"):
        train.train(page, out=tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return nn.Sequential(", "return nn.Nothing("),
        ("return part(72)", "return 1, part(72)"),
        ("nn.Linear(2, 16)", "1"),
    ],
)
def test_nothing_is_written_when_the_page_fails(variant, tmp_path: Path, old: str, new: str) -> None:
    with pytest.raises((OxError, AttributeError)):
        train.train(variant("wrong", (old, new)), out=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_optimizer_scheduler_and_step_of_ones_own(variant, tmp_path: Path) -> None:
    own = """
def optimizer(model, lr):
    return ox.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def scheduler(optimizer, lr, steps):
    return ox.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=steps)


def step(model, batch):
    points, sides = batch
    outputs = model(points)
    return nn.functional.cross_entropy(outputs, sides), outputs


def data():"""
    run = train.train(variant("own", ("\ndef data():", own), ("loss = nn.CrossEntropyLoss()\n", "")), out=tmp_path)
    rates = [line["lr"] for line in train.loggers.read(run.metrics) if "validation_loss" not in line]
    assert len(rates) == 15
    assert max(rates) == pytest.approx(0.05, rel=0.05)
    assert rates[-1] < 0.002
    assert run.result["held_back"]["accuracy"] > 0.7


def test_a_task_without_classes(variant, tmp_path: Path) -> None:
    page = variant(
        "numbers",
        ("nn.CrossEntropyLoss()", "nn.MSELoss()"),
        ("side.astype(np.int64)", "np.stack([side, side], 1).astype(np.float32)"),
    )
    run = train.train(page, out=tmp_path)
    assert "accuracy" not in run.result["held_back"]
    assert run.curves.is_file()
    rows = [line for line in train.loggers.read(run.metrics) if "validation_loss" in line]
    assert run.result["best"]["validation_loss"] == min(row["validation_loss"] for row in rows)


def test_a_hand_written_loop_uses_the_parts_alone(page: Path) -> None:
    """Nothing but a recipe's own functions and a loop."""
    from ox.data import DataLoader
    from ox.optim import SGD

    recipe = train.load(page)
    ox.manual_seed(0)
    model, data = recipe.model(), recipe.data()
    optimizer = SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        for points, sides in DataLoader(data.train, batch_size=16, shuffle=True):
            optimizer.zero_grad()
            loss = recipe.page.loss(model(points), sides)
            loss.backward()
            optimizer.step()
    result = train.evaluate(
        model, lambda m, b: (recipe.page.loss(m(b[0]), b[1]), m(b[0])), DataLoader(data.validation, 32)
    )
    assert result.accuracy is not None
    assert result.accuracy > 0.7
