"""`ox.export.save_step`: the file trains as eager ox does, and saving leaves no trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from optimizer_cases import CASES, MUON, OWN, Case, ids
from steps_eager import Digits, check_weights, digits, driver, train_eager

import ox
from ox import nn, optim, tolerance

train = driver()
LOSS = nn.CrossEntropyLoss(label_smoothing=0.1)


def batches(steps: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = digits(steps * size, 1)
    return x.reshape(steps, size, *x.shape[1:]), y.reshape(steps, size)


@pytest.mark.parametrize(
    "optimizer_of",
    [
        lambda p: optim.SGD(p, 0.02, momentum=0.9),
        lambda p: optim.Adam(p, 1e-3, eps=1e-3, weight_decay=0.1),
        lambda p: optim.AdamW(p, 1e-3, eps=1e-3),
    ],
    ids=["SGD", "Adam", "AdamW"],
)
def test_a_hundred_steps_end_at_the_weights_of_eager(tmp_path: Path, optimizer_of: Any) -> None:
    """With dropout, clipping and batch norm, on a driver without ox, at a batch size that was never recorded."""
    ox.manual_seed(0)
    model = Digits(dropout=0.2)
    optimizer = optimizer_of(model.parameters())
    path = tmp_path / "step.onnx"
    report = ox.export.save_step(model, LOSS, optimizer, path, *digits(20), clip=1.0, seed=7)
    assert report.layout.metrics == ("accuracy",)

    trainer = train.Trainer(path)
    data = batches(100, 5)
    ox.manual_seed(7)
    eager = train_eager(model, LOSS, optimizer, data, clip=1.0)
    plain = [trainer(image=x, target=y) for x, y in zip(*data, strict=True)]
    np.testing.assert_allclose([step["loss"] for step in plain], eager, rtol=1e-3)
    check_weights(trainer.state, model)
    moments = [name for name in trainer.state if "exp_avg" in name or "momentum" in name]
    assert moments
