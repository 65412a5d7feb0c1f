"""A loss that is NaN or infinite stops the run and names who made it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ox import train
from ox.errors import TrainError

FORWARD = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(2, 2)

    def forward(self, x):
        return {}


def model():
    return Net()
"""
MODEL = "def model():\n    return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))\n"


def failure(path: Path, out: Path, **options) -> TrainError:
    with pytest.raises(TrainError) as caught:
        train.train(path, out=out, **options)
    return caught.value


def test_names_the_operator_the_module_and_the_line(variant, tmp_path: Path) -> None:
    page = variant("logs", (MODEL, FORWARD.format("self.body(x - x.detach()).abs() * 0 + (x - x).log()")))
    error = failure(page, tmp_path)
    assert error.what.startswith("the loss is ")
    assert error.what.endswith("at step 1")
    assert "Log made the first infinity from input float32 [16, 2] in [0, 0]" in error.extra["cause"]
    assert "Net" in str(error.where)
    assert "logs.py:" in str(error.where)
    assert "(x - x).log()" in str(error.where)


def test_names_the_first_of_several(variant, tmp_path: Path) -> None:
    page = variant("roots", (MODEL, FORWARD.format("(self.body(x) * 0 - 1).sqrt().exp().log()")))
    assert "Sqrt made the first NaN" in failure(page, tmp_path).extra["cause"]


def test_poor_data_is_named(variant, tmp_path: Path) -> None:
    page = variant(
        "poor",
        ("return points + 0.1", "points = points.clone()\n    points[3] = float('nan')\n    return points + 0.1"),
    )
    error = failure(page, tmp_path)
    assert "tensor 0 of the batch contains NaN or infinity in samples [3]" in error.extra["cause"]


def test_an_update_that_blew_up_is_named(variant, tmp_path: Path) -> None:
    page = variant(
        "hot",
        (
            "def data():",
            "def optimizer(model, lr):\n    return ox.optim.SGD(model.parameters(), lr=lr)\n\n\ndef data():",
        ),
    )
    error = failure(page, tmp_path, lr=1e38)
    assert "the loss is " in error.what
    assert error.hint is not None
    assert "--lr" in error.hint


def test_the_last_checkpoint_is_still_sound(variant, tmp_path: Path) -> None:
    import numpy as np

    from ox.train.run import checkpoint

    poison = """augment.calls = getattr(augment, "calls", 0) + 1
    if augment.calls == 8:
        points = points * float("inf")
    return points + 0.1"""
    page = variant("late", ("return points + 0.1", poison))
    error = failure(page, tmp_path, checkpoint_every=1e-9)
    assert error.what.endswith("at step 8")
    state = checkpoint.load(tmp_path / "late-0001" / "checkpoints" / "last.safetensors")
    assert 1 <= state["progress"]["step"] <= 7  # one is left out while the one before is still being written
    assert all(np.isfinite(x.array).all() for x in state["model"].values())
    assert all(np.isfinite(x.array).all() for x in state["model"].values())
