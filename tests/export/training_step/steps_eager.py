"""Models, and the eager training that their files are compared with."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import ox
from ox import nn, tolerance

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples" / "training_step"


class Digits(nn.Module):
    """Convolution, batch norm, pooling, dropout; no bias before the norm, whose gradient would be rounding alone."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.strokes = nn.Sequential(
            nn.Conv2d(1, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(dropout), nn.Linear(96, 10))

    def forward(self, image: Any) -> Any:
        return self.head(self.strokes(image))


def digits(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.random((count, 1, 8, 8), dtype=np.float32), random.integers(0, 10, count)


def driver() -> Any:
    """The module examples/training_step/train.py."""
    spec = importlib.util.spec_from_file_location("train", EXAMPLES / "train.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def train_eager(
    model: nn.Module,
    loss: Callable[[Any, Any], Any],
    optimizer: Any,
    batches: tuple[np.ndarray, np.ndarray],
    clip: float | None = None,
) -> list[float]:
    """Steps on batches [steps, batch, ...]. Returns the losses."""
    losses = []
    for x, y in zip(*batches, strict=True):
        optimizer.zero_grad()
        value = loss(model(ox.from_numpy(x)), ox.from_numpy(y))
        value.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(value.item())
    return losses


def check_weights(state: Mapping[str, np.ndarray], model: nn.Module) -> None:
    """Every parameter and buffer of `state` is the model's, within the table of tolerances."""
    own = {name: t.numpy() for name, t in model.state_dict().items()}
    found = [name for name in state if name in own]
    assert found
    for name in found:
        difference = tolerance.compare(np.asarray(state[name]), own[name])
        assert difference.ok, (name, difference)
