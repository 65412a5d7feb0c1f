"""Layers against PyTorch: forward, gradients, running statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ox import nn
from ox.nn import functional as F

torch = pytest.importorskip("torch")
tF = torch.nn.functional


def array(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> Any:
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("shape", [(5, 4), (4,), (2, 3, 4), (2, 3, 5, 4), (0, 4), (2, 0, 4)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear(parity: Any, rng: Any, shape: tuple[int, ...], bias: bool) -> None:
    parity(nn.Linear(4, 3, bias=bias), torch.nn.Linear(4, 3, bias=bias), array(rng, *shape))


def test_linear_double(parity: Any, rng: Any) -> None:
    parity(nn.Linear(4, 3).double(), torch.nn.Linear(4, 3).double(), array(rng, 2, 5, 4, dtype=np.float64))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2, "padding": 1},
        {"padding": "same", "dilation": 2},
        {"padding": "same", "kernel_size": (2, 4)},
        {"padding": "valid"},
        {"groups": 2, "bias": False},
        {"stride": (2, 1), "padding": (0, 2)},
        {"padding": (1, 2), "padding_mode": "reflect"},
        {"padding": 1, "padding_mode": "replicate"},
        {"padding": (1, 2), "padding_mode": "circular"},
    ],
)
@pytest.mark.filterwarnings("ignore:Using padding")
def test_conv2d(parity: Any, rng: Any, options: dict[str, Any]) -> None:
    options = {"kernel_size": 3, **options}
    parity(nn.Conv2d(4, 6, **options), torch.nn.Conv2d(4, 6, **options), array(rng, 2, 4, 9, 8))


def test_conv2d_without_a_batch(parity: Any, rng: Any) -> None:
    parity(nn.Conv2d(2, 3, 3), torch.nn.Conv2d(2, 3, 3), array(rng, 2, 6, 6))


@pytest.mark.parametrize(
    "args",
    [
        (2,),
        (3, 2),
        (3, 2, 1),
        ((2, 3), None, (1, 0)),
        (3, 1, 0, 2),
        (3, 2, 1, 1, True, True),
        (2, 2, 0, 1, False, True),
    ],
)
def test_max_pool(parity: Any, rng: Any, args: tuple[Any, ...]) -> None:
    parity(nn.MaxPool2d(*args), torch.nn.MaxPool2d(*args), array(rng, 2, 3, 9, 7))


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 2},
        {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False},
        {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
        {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True, "count_include_pad": False},
        {"kernel_size": 2, "divisor_override": 3, "padding": 1},
        {"kernel_size": 2, "ceil_mode": True},
    ],
)
def test_avg_pool(parity: Any, rng: Any, options: dict[str, Any]) -> None:
    parity(nn.AvgPool2d(**options), torch.nn.AvgPool2d(**options), array(rng, 2, 3, 9, 8))


@pytest.mark.parametrize("size", [1, 3, (2, 5), (None, 1), (9, 7), 12, (4, 14)])
def test_adaptive_avg_pool(parity: Any, rng: Any, size: Any) -> None:
    parity(nn.AdaptiveAvgPool2d(size), torch.nn.AdaptiveAvgPool2d(size), array(rng, 2, 3, 9, 7))


@pytest.mark.parametrize("padding_idx", [None, 0, -1])
def test_embedding(parity: Any, padding_idx: int | None) -> None:
    ours, theirs = (m.Embedding(6, 3, padding_idx=padding_idx) for m in (nn, torch.nn))
    indices = np.array([[0, 5, 2], [5, 5, 0]])
    parity(ours, theirs, indices)


@pytest.mark.parametrize(
    "name", ["ReLU", "GELU", "Sigmoid", "Tanh", "SiLU", "Flatten", "Identity", "Softmax", "LogSoftmax"]
)
def test_activations(parity: Any, rng: Any, name: str) -> None:
    arguments = {"dim": 1} if name.endswith("oftmax") else {}
    parity(getattr(nn, name)(**arguments), getattr(torch.nn, name)(**arguments), array(rng, 3, 4, 5))


def test_shapes_and_tanh_gelu(parity: Any, rng: Any) -> None:
    parity(nn.GELU("tanh"), torch.nn.GELU("tanh"), array(rng, 3, 4))
    parity(nn.Unflatten(1, (2, 3)), torch.nn.Unflatten(1, (2, 3)), array(rng, 4, 6, 2))
    parity(nn.Flatten(0, 1), torch.nn.Flatten(0, 1), array(rng, 4, 6, 2))
    parity(nn.Flatten(), torch.nn.Flatten(), array(rng, 4, 6))


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_pad(parity: Any, rng: Any, mode: str) -> None:
    parity(lambda x: F.pad(x, (1, 2, 0, 1), mode), lambda x: tF.pad(x, (1, 2, 0, 1), mode), array(rng, 2, 3, 4, 5))


def test_softplus_and_logsigmoid(parity: Any) -> None:
    x = np.array([-100.0, -3.0, 0.0, 2.0, 100.0], np.float32)
    parity(F.softplus, tF.softplus, x)
    parity(F.logsigmoid, tF.logsigmoid, x)
