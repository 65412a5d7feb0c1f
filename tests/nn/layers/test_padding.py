"""Padding against NumPy's, and the dropouts' promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from elsewhere import holds_elsewhere
from rows import rows

import ox
from ox import nn
from ox.errors import ArgumentError, ShapeError
from ox.nn import functional as F

X = np.random.default_rng(6).normal(size=(2, 3, 5, 4))
NUMPY = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@rows("mode", NUMPY)
@rows("amounts", [(1, 2), (1, 2, 3, 0), (0, 0, 4, 4)])
def test_as_numpy(mode: str, amounts: tuple[int, ...]) -> None:
    widths = [(0, 0)] * (4 - len(amounts) // 2) + [amounts[i : i + 2] for i in range(len(amounts) - 2, -1, -2)]
    x = X if len(amounts) == 4 else X[0]
    expected = np.pad(x, widths[-x.ndim :], mode=NUMPY[mode])  # type: ignore[call-overload]
    assert np.array_equal(F.pad(ox.tensor(x), amounts, mode).numpy(), expected)


def test_negative_amounts_crop() -> None:
    assert np.array_equal(F.pad(ox.tensor(X), (-1, 0, 0, -2)).numpy(), X[:, :, :3, 1:])
    assert F.pad(ox.tensor(X), (1, -1), value=7.0).numpy()[..., 0].min() == 7


@rows("kind", ["Constant", "Zero", "Reflection", "Replication", "Circular"])
@rows("rank", [1, 2, 3])
def test_modules(kind: str, rank: int) -> None:
    args = (1, 0.5) if kind == "Constant" else (1,)
    layer = getattr(nn, f"{kind}Pad{rank}d")(*args)
    x = ox.ones(2, 3, *[4] * rank)
    y = layer(x).numpy()
    assert y.shape == (2, 3, *[6] * rank)
    assert y.reshape(-1)[0] == {"Constant": 0.5, "Zero": 0.0}.get(kind, 1.0)
    assert repr(layer).startswith(f"{kind}Pad{rank}d(")


def test_errors() -> None:
    x = ox.tensor(X)
    for wrong in (
        lambda: F.pad(x, (1,)),
        lambda: F.pad(x, (1, 1), "mirror"),
        lambda: F.pad(x, (1, 1, 1, 1), "reflect", 2.0),
        lambda: nn.ZeroPad2d((1, 2, 3)),
        lambda: nn.Dropout(1.5),
        lambda: F.alpha_dropout(x, -1.0),
    ):
        with pytest.raises(ArgumentError):
            wrong()
    for wrong in (
        lambda: F.pad(x, (4, 0, 0, 0), "reflect"),
        lambda: F.pad(x, (5, 0, 0, 0), "circular"),
        lambda: F.pad(x, (1, 1), "replicate"),
        lambda: F.pad(x, (-3, -3)),
        lambda: F.dropout1d(x),
    ):
        with pytest.raises(ShapeError):
            wrong()


@pytest.mark.parametrize("layer", [nn.ReflectionPad2d((1, 2, 0, 3)), nn.CircularPad2d(2), nn.ReplicationPad2d(2),
                                   nn.ConstantPad2d((1, -1, 2, 0), 0.5)], ids=repr)  # fmt: skip
def test_recorded_with_open_sizes(layer: Any) -> None:
    assert holds_elsewhere(layer, (2, 3, 5, 6), (1, 4, 9, 7))


CHANNELS = [("Dropout1d", (60, 20, 9)), ("Dropout2d", (60, 20, 3, 3)), ("Dropout3d", (60, 20, 2, 2, 3)),
            ("FeatureAlphaDropout", (60, 20, 3, 3))]  # fmt: skip


@pytest.mark.parametrize(("name", "shape"), CHANNELS)
def test_whole_channels_are_dropped(name: str, shape: tuple[int, ...]) -> None:
    layer = getattr(nn, name)(0.4)
    ox.manual_seed(0)
    y = layer(ox.ones(*shape)).numpy().reshape(60, 20, -1)
    assert (y == y[..., :1]).all()
    assert abs((y[..., 0] == y.max()).mean() - 0.6) < 0.06
    ox.manual_seed(0)
    assert np.array_equal(layer(ox.ones(*shape)).numpy().reshape(60, 20, -1), y)
    assert (layer.eval()(ox.ones(*shape)).numpy() == 1).all()


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_alpha_dropout_keeps_mean_and_variance(p: float) -> None:
    ox.manual_seed(0)
    y = F.alpha_dropout(ox.randn(400, 400), p, training=True).numpy()
    assert abs(y.mean()) < 0.03 and abs(y.var() - 1) < 0.05


def test_dropout_in_place_and_its_gradient() -> None:
    x = ox.ones(4, 5)
    assert nn.Dropout(0.5, inplace=True)(x) is x
    assert set(np.unique(x.numpy())) <= {0.0, 2.0}
    x = ox.ones(40, 5).requires_grad_()
    y = F.dropout2d(x.reshape(4, 10, 5, 1), 0.5)
    y.sum().backward()
    assert x.grad is not None
    assert np.array_equal(x.grad.numpy().ravel(), y.detach().numpy().ravel())
