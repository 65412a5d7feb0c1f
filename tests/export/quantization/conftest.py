"""A small network in a float32 file, and its inputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import ox
from ox import nn

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="session")
def images() -> Array:
    return np.random.default_rng(0).normal(size=(64, 1, 8, 8)).astype(np.float32)


@pytest.fixture(scope="session")
def network(tmp_path_factory: pytest.TempPathFactory, images: Array) -> Path:
    """Convolution, batch norm, two linear layers."""
    ox.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 32), nn.ReLU(), nn.Linear(32, 5)
    )
    model(ox.from_numpy(images))
    path = tmp_path_factory.mktemp("float32") / "network.onnx"
    ox.export.save(model, path, images, labels=list("abcde"))
    return path


@pytest.fixture(scope="session")
def scores() -> Callable[[Path | Any, Array], Array]:
    """The first output of a file or session."""

    def run(model: Path | Any, x: Array) -> Array:
        session = ort.InferenceSession(str(model)) if isinstance(model, Path) else model
        result: Array = session.run(None, {session.get_inputs()[0].name: x})[0]
        return result

    return run
