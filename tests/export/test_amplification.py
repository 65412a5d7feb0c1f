"""A proof allows what a graph makes of rounding, an element at a time, and nothing more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox import nn, tolerance
from ox.errors import ExportError
from ox.export import proof


class LogMel(nn.Module):
    """Mel filters of a spectrum, in logarithms: what is nearly 0 in a quiet band is another number in each sum."""

    def __init__(self, size: int = 400, bands: int = 40, *, matrix: bool = False) -> None:
        super().__init__()
        self.size, self.matrix, self.floor, self.factor = size, matrix, 1e-10, 1.0
        at, centres = np.linspace(0, 1, size // 2 + 1)[:, None], np.linspace(0, 1, bands + 2)
        rising, falling = (at - centres[:-2]) * (bands + 1), (centres[2:] - at) * (bands + 1)
        self.register_buffer("window", ox.hann_window(size))
        self.register_buffer("filters", ox.tensor(np.maximum(0, np.minimum(rising, falling)).astype(np.float32)))
        turns = np.exp(-2j * np.pi * np.arange(size)[:, None] * np.arange(size // 2 + 1) / size)
        self.register_buffer("turns", ox.tensor(np.stack([turns.real, turns.imag]).astype(np.float32)))

    def forward(self, sound: Any) -> Any:
        if self.matrix:
            frames = sound.reshape(sound.shape[0], -1, self.size) * self.window
            power = (frames @ self.turns[0]).square() + (frames @ self.turns[1]).square()
        else:
            spectrum = ox.stft(sound, self.size, 160, window=self.window, return_complex=False)
            power = spectrum.square().sum(-1).transpose(1, 2)
        return self.factor * (power @ self.filters + self.floor).log()


TIME = np.arange(4000) / 16000
TONES = np.stack([np.sin(2 * np.pi * 240 * (k + 1) * TIME) for k in range(10)]).astype(np.float32)
NOISE = (0.01 * np.random.default_rng(0).normal(size=TONES.shape)).astype(np.float32)
SOUNDS = {"a tone": TONES, "and then silence": TONES * (TIME < 0.1).astype(np.float32), "quiet": 1e-4 * TONES}


@rows("matrix", [False, True], ids=["STFT", "MatMul"])
@rows("name", SOUNDS)
def test_a_logarithm_of_nearly_nothing(tmp_path: Path, name: str, matrix: bool) -> None:
    """The model is saved, loaded, and saved again."""
    sound = SOUNDS[name]
    report = ox.export.save(LogMel(matrix=matrix), tmp_path / "m.onnx", sound)
    assert all(row.max_abs <= row.allowed for row in report.rows)
    loaded = ox.export.load(tmp_path / "m.onnx")
    ox.export.save(loaded, tmp_path / "again.onnx", sound)


def test_the_plain_table_would_refuse_it(tmp_path: Path) -> None:
    usual = dict(zip(("atol", "rtol"), tolerance.rule(np.dtype(np.float32)), strict=True))
    with pytest.raises(ExportError, match="gives another 'output' than the model"):
        ox.export.save(LogMel(), tmp_path / "m.onnx", TONES, golden=None, proof=usual)


def another_filter(model: LogMel) -> None:
    model.filters[:, 7] *= 1.01


def another_floor(model: LogMel) -> None:
    model.floor = 1e-4


def another_factor(model: LogMel) -> None:
    model.factor = 1.001


def another_window(model: LogMel) -> None:
    model.window.copy_(ox.hann_window(400, periodic=False))


WRONG = {  # a floor shows where it is quiet, a filter where it is not
    "floor": (another_floor, TONES),
    "filter": (another_filter, TONES + NOISE),
    "factor": (another_factor, TONES),
    "factor, with noise": (another_factor, TONES + NOISE),
    "window": (another_window, TONES),
}


@rows("name", WRONG)
def test_a_wrong_constant_is_refused(tmp_path: Path, monkeypatch: Any, name: str) -> None:
    """As of a runtime that computes with another number."""
    change, sound = WRONG[name]
    wrong = LogMel()
    with ox.no_grad():
        change(wrong)

    def run(_: Any, case: proof.Case) -> dict[str, Any]:
        with ox.no_grad():
            return {"output": wrong(ox.tensor(case.inputs["sound"])).numpy()}

    monkeypatch.setattr(proof, "_run", run)
    monkeypatch.setattr(proof, "first_difference", lambda *_: (None, 0.0))
    with pytest.raises(ExportError, match="gives another 'output' than the model"):
        ox.export.save(LogMel(), tmp_path / "m.onnx", sound, golden=None)
    assert not list(tmp_path.iterdir())


def test_infinity_and_another_shape_are_never_near() -> None:
    y = np.array([1.0, 2.0], np.float32)
    moved = np.array([1e9, 1e9])
    assert tolerance.compare_amplified(y + 5, y, moved).ok
    assert not tolerance.compare_amplified(np.array([np.inf, 2.0], np.float32), y, moved).ok
    assert not tolerance.compare_amplified(np.array([np.nan, 2.0], np.float32), y, moved).ok
    assert tolerance.compare_amplified(
        np.array([np.nan, 2.0], np.float32), np.array([np.nan, 2.0], np.float32), moved
    ).ok
