"""Losses against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ox.nn import functional as F

torch = pytest.importorskip("torch")
tF = torch.nn.functional

WEIGHT = np.array([0.5, 2.0, 1.0, 0.1], np.float32)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("shape", [(6, 4), (2, 4, 3), (2, 4, 3, 2), (4,)])
def test_cross_entropy(parity: Any, rng: Any, reduction: str, smoothing: float, weight: Any, shape: Any) -> None:
    x = rng.standard_normal(shape).astype(np.float32) * 4
    places = shape[:1] + shape[2:] if len(shape) > 1 else ()
    target = rng.integers(0, 4, places)
    if places:
        target[0, ...] = -100
    options = {"reduction": reduction, "label_smoothing": smoothing, "weight": weight}
    parity(F.cross_entropy, tF.cross_entropy, x, target, **options)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("shape", [(6, 4), (2, 4, 3), (4,)])
def test_cross_entropy_of_probabilities(
    parity: Any, rng: Any, reduction: str, smoothing: float, weight: Any, shape: Any
) -> None:
    x = rng.standard_normal(shape).astype(np.float32)
    t = rng.random(shape).astype(np.float32)
    options = {"reduction": reduction, "label_smoothing": smoothing, "weight": weight}
    parity(F.cross_entropy, tF.cross_entropy, x, t, **options)


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_ignore_index_and_nll(parity: Any, rng: Any, weight: Any) -> None:
    x = rng.standard_normal((7, 4)).astype(np.float32)
    target = np.array([0, 1, 1, 3, 2, 1, 0])
    parity(F.cross_entropy, tF.cross_entropy, x, target, weight=weight, ignore_index=1)
    parity(F.nll_loss, tF.nll_loss, x, target, weight=weight, ignore_index=1)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_of_equal_shapes(parity: Any, rng: Any, reduction: str) -> None:
    x, t = rng.standard_normal((2, 5, 3)).astype(np.float32)
    x[0, 0] = 0
    parity(F.mse_loss, tF.mse_loss, x, t, reduction=reduction)
    parity(F.l1_loss, tF.l1_loss, x, t, reduction=reduction)
    p = 1 / (1 + np.exp(-t))
    ours, theirs = F.binary_cross_entropy_with_logits, tF.binary_cross_entropy_with_logits
    parity(ours, theirs, x * 50, p, reduction=reduction)
    pos = np.array([0.5, 3.0, 1.0], np.float32)
    parity(ours, theirs, x, p, reduction=reduction, pos_weight=pos, weight=pos + 1)
