"""Fake quantization beside PyTorch: values, gradients, scales and zero points."""

from __future__ import annotations

import numpy as np
import pytest
from sides import torch

import ox
from ox.ao import quantization as ours

theirs = torch.ao.quantization
X = np.random.default_rng(0).normal(size=(5, 40)).astype(np.float32)


@pytest.mark.filterwarnings("ignore")
def test_activations() -> None:
    """By moving averages, which leave the values of larger batches beyond the range."""
    their = theirs.FakeQuantize(theirs.MovingAverageMinMaxObserver, quant_min=0, quant_max=255, dtype=torch.quint8)
    our = ours.FakeQuantize()
    for factor in (1, 2, 5):
        t, o = torch.tensor(X * factor, requires_grad=True), ox.tensor(X * factor).requires_grad_()
        a, b = their(t), our(o)
        a.square().sum().backward()
        b.square().sum().backward()
        assert np.array_equal(a.detach().numpy(), b.detach().numpy())
        assert np.array_equal(t.grad.numpy(), o.grad.numpy())  # type: ignore[union-attr]
        assert their.scale.item() == our.scale.item() and their.zero_point.item() == our.zero_point.item()


@pytest.mark.filterwarnings("ignore")
def test_weights() -> None:
    """By channel; the largest of a channel lies between two steps, and PyTorch multiplies where ONNX divides."""
    their = theirs.FakeQuantize(
        theirs.PerChannelMinMaxObserver, quant_min=-128, quant_max=127, dtype=torch.qint8,
        qscheme=torch.per_channel_symmetric,
    )  # fmt: skip
    our = ours.FakeQuantize(ours.PerChannelMinMaxObserver)
    a, b = their(torch.tensor(X)).detach().numpy(), our(ox.tensor(X)).detach().numpy()
    assert np.array_equal(their.scale.numpy(), our.scale.numpy())
    inner = np.abs(X) < np.abs(X).max(1, keepdims=True)
    assert np.array_equal(a[inner], b[inner]) and np.abs(a - b).max() <= our.scale.numpy().max() * 1.001
