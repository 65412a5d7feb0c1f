"""The recipe that comes with ox keeps its promise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ox
from ox import train
from ox_models import digits
from ox_models.digits_data import split


def test_the_three_parts_share_nothing() -> None:
    parts = split()
    assert [len(part.labels) for part in parts] == [1149, 288, 360]
    seen = [{image.tobytes() for image in part.images} for part in parts]
    assert not seen[0] & seen[2]
    assert not seen[1] & seen[2]
    for part in parts:
        assert (part.images.dtype, part.labels.dtype) == (np.float32, np.int64)
        assert part.images.min() == 0
        assert part.images.max() == 1
        assert set(part.labels.tolist()) == set(range(10))


def test_augmentation_shifts_by_at_most_a_pixel() -> None:
    images = ox.tensor(np.random.RandomState(0).rand(50, 1, 8, 8).astype(np.float32))
    shifted, answers = digits.augment((images, ox.arange(50)), ox.Generator(1))
    assert shifted.shape == images.shape
    assert answers.tolist() == list(range(50))
    padded = np.pad(images.numpy(), ((0, 0), (0, 0), (1, 1), (1, 1)))
    moves = []
    for i, image in enumerate(shifted.numpy()):
        fits = [(r, c) for r in range(3) for c in range(3) if np.array_equal(padded[i, :, r : r + 8, c : c + 8], image)]
        assert len(fits) == 1
        moves += fits
    assert len(set(moves)) == 9
    again, _ = digits.augment((images, ox.arange(50)), ox.Generator(1))
    assert np.array_equal(again.numpy(), shifted.numpy())


def test_what_half_of_the_training_brings(tmp_path: Path) -> None:
    run = train.train("digits", out=tmp_path, epochs=10)
    assert run.result is not None
    assert run.result["held_back"]["count"] == 360
    assert run.result["held_back"]["accuracy"] >= 0.97


@pytest.mark.slow
def test_held_back_accuracy_of_one_seed(tmp_path: Path) -> None:
    """The median of five seeds is measured by benchmarks/bench_digits.py."""
    run = train.train("digits", out=tmp_path)
    assert run.result is not None
    assert run.result["held_back"]["count"] == 360
    assert run.result["held_back"]["accuracy"] >= 0.985


def test_stopped_and_resumed_it_ends_the_same(tmp_path: Path) -> None:
    """As tests/train/test_resume.py, but through convolutions, batch normalization and ONNX Runtime's own threads."""
    from ox.train.display import Silent
    from ox.train.run import checkpoint

    class Stop(Silent):
        def step(self, trainer: train.Trainer, rate: float) -> None:
            if trainer.progress.step == 7:
                raise KeyError("killed")

    options = {"epochs": 3, "limit": 256, "checkpoint_every": 1e-9}
    whole = train.train("digits", out=tmp_path / "whole", **options)
    with pytest.raises(KeyError):
        train.train("digits", out=tmp_path / "stopped", show=Stop(), **options)
    resumed = train.resume(tmp_path / "stopped" / "digits-0001")
    states = [checkpoint.load(run.last) for run in (whole, resumed)]
    for part in ("model", "optimizer"):
        one, two = (flat(state[part]) for state in states)
        assert one == two


def flat(value: object) -> object:
    """Tensors as bytes, so that == compares every bit."""
    if isinstance(value, dict):
        return {key: flat(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [flat(item) for item in value]
    return value.array.tobytes() if isinstance(value, ox.Tensor) else value
