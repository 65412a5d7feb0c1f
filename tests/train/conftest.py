"""A recipe small enough that a whole run takes a fraction of a second, with every kind of randomness in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ox import train
from ox.train.run import curves

PAGE = '''
"""Two clouds of points."""

import numpy as np

import ox
from ox import nn
from ox.data import TensorDataset

inputs = {"point": "x and y"}
outputs = {"scores": "one a side"}
labels = ["left", "right"]
defaults = {"epochs": 3, "batch_size": 16, "lr": 0.05}
loss = nn.CrossEntropyLoss()


def data():
    random = np.random.RandomState(0)

    def part(count):
        side = random.randint(0, 2, count)
        points = random.randn(count, 2) + 2.0 * side[:, None]
        return TensorDataset(points.astype(np.float32), side.astype(np.int64))

    return part(72), part(32), part(32)


def model():
    return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))


def augment(batch, generator):
    points, sides = batch
    return points + 0.1 * ox.randn(*points.shape, generator=generator), sides
'''


@pytest.fixture(autouse=True)
def blank_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in this process end with an empty curves.png: to draw it takes longer than to train."""
    monkeypatch.setattr(curves, "draw", lambda path, *_: path.touch())


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """The path of the recipe `points`."""
    path = tmp_path / "points.py"
    path.write_text(PAGE)
    return path


@pytest.fixture
def here(page: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the recipe `points`, to stand in."""
    monkeypatch.chdir(page.parent)
    return page.parent


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> train.Run:
    """A run of the recipe `points` that nothing stopped. To be read, not changed."""
    path = tmp_path_factory.mktemp("whole") / "points.py"
    path.write_text(PAGE)
    return train.train(path, out=path.parent / "runs")


@pytest.fixture(scope="session")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two runs of the recipe `points`, of 2 and of 3 epochs. To be copied, not changed."""
    path = tmp_path_factory.mktemp("two") / "points.py"
    path.write_text(PAGE)
    train.train(path, out=path.parent / "runs", epochs=2)
    train.train(path, out=path.parent / "runs", epochs=3, lr=0.01, seed=5)
    return path.parent / "runs"


@pytest.fixture
def variant(tmp_path: Path):
    """Writes the page with something replaced, under another name."""

    def write(name: str, *changes: tuple[str, str]) -> Path:
        text = PAGE
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        return path

    return write
