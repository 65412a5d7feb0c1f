"""Convolutions: against sums written out, as adjoints, recorded, lazy, and their errors."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from elsewhere import holds_elsewhere
from rows import rows

import ox
from ox import nn
from ox.errors import ArgumentError, ShapeError
from ox.nn import functional as F

R = np.random.default_rng(3)


def test_the_sum_written_out() -> None:
    x, w, b = R.normal(size=(2, 4, 6, 5)), R.normal(size=(6, 2, 3, 2)), R.normal(size=6)
    got = F.conv2d(ox.tensor(x), ox.tensor(w), ox.tensor(b), (2, 1), (1, 0), (1, 2), 2).numpy()
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0)))
    assert got.shape == (2, 6, 3, 3)
    for n, m, i, j in product(*map(range, got.shape)):
        part = padded[n, m // 3 * 2 : m // 3 * 2 + 2, 2 * i : 2 * i + 3, j : j + 3 : 2]
        assert np.isclose(got[n, m, i, j], (part * w[m]).sum() + b[m])


@rows("rank", [1, 2, 3])
@rows("options", [{}, {"stride": 2}, {"padding": 1, "groups": 2}, {"dilation": 2, "stride": 2}])
def test_a_transpose_is_the_adjoint(rank: int, options: dict[str, int]) -> None:
    conv, transposed = (getattr(F, f"{name}{rank}d") for name in ("conv", "conv_transpose"))
    x = ox.tensor(R.normal(size=(2, 4, *(9, 7, 7)[:rank])))
    w = ox.tensor(R.normal(size=(6, 4 // options.get("groups", 1), *[3] * rank)))
    y = conv(x, w, **options)
    z = ox.tensor(R.normal(size=y.shape))
    assert np.isclose((y * z).sum().item(), (x * transposed(z, w, **options)).sum().item())


@rows("kernel", [1, 2, 3, 4, 7])
@rows("mode", ["zeros", "reflect", "replicate", "circular"])
def test_same_keeps_the_sizes(kernel: int, mode: str) -> None:
    conv = nn.Conv2d(3, 2, kernel, padding="same", padding_mode=mode)
    assert conv(ox.ones(1, 3, 9, 8)).shape == (1, 2, 9, 8)


def test_output_size_chooses_among_what_the_stride_leaves_open() -> None:
    up = nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1)
    x = ox.ones(1, 3, 5, 5)
    assert up(x).shape == (1, 4, 9, 9)
    assert up(x, output_size=(10, 9)).shape == up(x, output_size=(1, 4, 10, 9)).shape == (1, 4, 10, 9)
    with pytest.raises(ShapeError, match="output_size"):
        up(x, output_size=(11, 9))
    wide = nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, dilation=2)
    assert wide(x, output_size=(12, 12)).shape == (1, 4, 12, 12)


LAZY = [f"{kind}{rank}d" for kind in ("Conv", "ConvTranspose") for rank in (1, 2, 3)]


@rows("name", LAZY)
def test_lazy(name: str) -> None:
    rank = int(name[-2])
    conv = getattr(nn, f"Lazy{name}")(6, 2, groups=2)
    assert conv.has_uninitialized_params()
    y = conv(ox.ones(2, 4, *[5] * rank))
    assert type(conv) is getattr(nn, name)
    assert conv.in_channels == 4 and y.shape[1] == 6
    assert conv.weight.array.std() > 0
    twin = getattr(nn, f"Lazy{name}")(6, 2, groups=2)
    twin.load_state_dict(conv.state_dict())
    assert np.array_equal(twin(ox.ones(2, 4, *[5] * rank)).array, y.array)
    with pytest.raises(ShapeError):
        getattr(nn, f"Lazy{name}")(6, 2, groups=2)(ox.ones(2, 3, *[5] * rank))


def test_errors_name_the_layer() -> None:
    with pytest.raises(ShapeError) as caught:
        nn.Conv2d(3, 8, 3)(ox.ones(2, 9, 9, 3))
    assert "x.permute(0, 3, 1, 2)" in str(caught.value)
    with pytest.raises(ShapeError) as caught:
        nn.Conv1d(3, 8, 3)(ox.ones(2, 5, 9))
    assert "nn.Conv1d(5, 8, ...)" in str(caught.value)
    for wrong in ({"groups": 2}, {"stride": 0}, {"padding": "half"}, {"padding": "same", "stride": 2}):
        with pytest.raises(ArgumentError):
            nn.Conv2d(3, 4, 3, **wrong)  # type: ignore[arg-type]


MODULES: list[Any] = [
    lambda: nn.Conv2d(3, 4, 3, padding=1),
    lambda: nn.Conv2d(3, 4, 3, stride=2, padding=1),
    lambda: nn.Conv2d(3, 6, 3, groups=3, padding="same"),
    lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"),
    lambda: nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1),
]


@pytest.mark.parametrize("make", MODULES)
def test_recorded_with_open_sizes(make: Any) -> None:
    assert holds_elsewhere(make(), (2, 3, 7, 6), (3, 3, 10, 9))
