"""Runs of images that are told apart by their brightness: trained in a second, with some mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ox import train

PAGE = '''
"""Bright and dark squares, a third of them mislabelled."""

import numpy as np

from ox import nn
from ox.data import TensorDataset

labels = ["dark <b>", "bright"]
defaults = {"epochs": 2, "batch_size": 16, "lr": 0.05}
loss = nn.CrossEntropyLoss()
metrics = ["f1"]


def data():
    random = np.random.RandomState(0)

    def part(count):
        light = random.rand(count)
        images = light[:, None, None, None] * np.ones((1, 1, 6, 6)) + 0.05 * random.randn(count, 1, 6, 6)
        sides = (light + 0.5 * (random.rand(count) - 0.5) > 0.5).astype(np.int64)
        return TensorDataset(images.astype(np.float32), sides)

    return part(96), part(48), part(64)


def model():
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 2))


def sample(model):
    return "two & two"
'''


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> train.Run:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "squares.py").write_text(PAGE)
    return train.train("squares.py")
