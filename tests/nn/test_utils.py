"""Clipping gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox import nn
from ox.errors import GradientError
from ox.nn.utils import clip_grad_norm_, clip_grad_value_


def with_gradients(*grads: Any) -> list[nn.Parameter]:
    params = [nn.Parameter(np.zeros_like(g)) for g in grads]
    for p, g in zip(params, grads, strict=True):
        p.grad = ox.tensor(g.copy())
    return params


@rows("kind", [2.0, 1.0, float("inf")])
@rows("most", [0.5, 1000.0])
def test_norms(kind: float, most: float) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    grads = [rng.standard_normal(s).astype(np.float32) for s in [(3, 4), (5,), ()]]
    grads = [np.asarray(g) for g in grads]
    ours = with_gradients(*grads)
    theirs = [torch.zeros(g.shape, requires_grad=True) for g in grads]
    for p, g in zip(theirs, grads, strict=True):
        p.grad = torch.tensor(g)
    total = clip_grad_norm_(ours, most, kind)
    assert total.item() == pytest.approx(torch.nn.utils.clip_grad_norm_(theirs, most, kind).item(), rel=1e-6)
    for p, q in zip(ours, theirs, strict=True):
        assert np.allclose(p.grad.array, q.grad.numpy(), rtol=1e-5, atol=1e-7)


def test_a_gradient_that_two_share_is_scaled_once() -> None:
    a, b = (nn.Parameter(np.zeros(3, np.float32)) for _ in range(2))
    ((a + b) * ox.tensor([3.0, 0.0, 4.0])).sum().backward()
    clip_grad_norm_([a, b], np.sqrt(50) / 5)
    for p in (a, b):
        assert np.allclose(p.grad.array, [0.6, 0, 0.8], atol=1e-5)


def test_gradients_that_cannot_be_written() -> None:
    p = nn.Parameter(np.zeros((2, 2), np.float32))
    p.sum().backward()
    assert clip_grad_norm_(p, 1.0).item() == 2
    assert np.allclose(p.grad.array, 0.5)


def test_not_finite() -> None:
    params = with_gradients(np.array([1.0, np.nan], np.float32), np.ones(2, np.float32))
    with pytest.raises(GradientError, match="not finite"):
        clip_grad_norm_(params, 1.0, error_if_nonfinite=True)
    assert (params[1].grad.array == 1).all()
    assert np.isnan(clip_grad_norm_(params, 1.0).item())


def test_nothing_to_clip() -> None:
    assert clip_grad_norm_([nn.Parameter(np.ones(2, np.float32))], 1.0).item() == 0


def test_values() -> None:
    (p,) = with_gradients(np.array([-3.0, 0.5, 2.0], np.float32))
    clip_grad_value_([p], 1.0)
    assert p.grad.array.tolist() == [-1, 0.5, 1]
