"""Images in other sizes, through grids, as columns and shuffled: properties, and recordings."""

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

R = np.random.default_rng(5)
X = R.normal(size=(2, 3, 6, 5))


def test_nearest_repeats() -> None:
    assert np.array_equal(F.interpolate(ox.tensor(X), scale_factor=2).numpy(), X.repeat(2, 2).repeat(2, 3))
    assert np.array_equal(
        F.interpolate(ox.tensor(X), scale_factor=(1, 3), mode="nearest-exact").numpy(), X.repeat(3, 3)
    )


@rows(("mode", "rank"), [("linear", 1), ("bilinear", 2), ("bicubic", 2), ("trilinear", 3)])
@rows("align", [True, False])
def test_a_plane_stays_a_plane(mode: str, rank: int, align: bool) -> None:
    """Between its border rows every mode reproduces a linear image, and a constant everywhere; sizes that do not change
    change nothing."""
    sizes, wanted = (6, 5, 4)[:rank], (11, 9, 7)[:rank]
    ramp = sum(np.meshgrid(*[np.linspace(0, 1, n) for n in sizes], indexing="ij"))[None, None]
    out = F.interpolate(ox.tensor(ramp), wanted, mode=mode, align_corners=align).numpy()[0, 0]
    if align:
        # a cubic has no second border row to lean on
        exact = sum(np.meshgrid(*[np.linspace(0, 1, n) for n in wanted], indexing="ij"))
        inner = tuple([slice(3, -3) if mode == "bicubic" else slice(None)] * rank)
        assert np.allclose(out[inner], exact[inner])
    else:
        assert np.allclose(out + out[(slice(None, None, -1),) * rank], rank)
    assert (
        np.allclose(
            F.interpolate(ox.tensor(X[..., 0] if rank == 1 else X), X.shape[2 : 2 + min(rank, 2)]).numpy(),
            X[..., 0] if rank == 1 else X,
        )
        if rank < 3
        else True
    )
    one = F.interpolate(ox.ones(1, 1, *sizes), wanted, mode=mode, align_corners=align).numpy()
    assert np.allclose(one, 1)


@rows(("recompute", "scale"), [(False, 1.5), (True, 4 / 3)], ids=["scale", "quotient of the sizes"])
def test_positions_of_a_scale_that_does_not_divide(recompute: bool, scale: float) -> None:
    """Three samples times 1.5 are four; a position is divided by the scale itself unless it is recomputed."""
    row = np.array([0.0, 1.0, 5.0])
    positions = (np.arange(4) + 0.5) / scale - 0.5
    out = F.interpolate(ox.tensor(row[None, None]), scale_factor=1.5, mode="linear", recompute_scale_factor=recompute)
    assert np.allclose(out.numpy()[0, 0], np.interp(positions, np.arange(3), row))


def test_area_and_antialias_keep_the_mean() -> None:
    x = ox.tensor(R.normal(size=(1, 1, 12, 8)))
    assert np.isclose(F.interpolate(x, (4, 2), mode="area").numpy().mean(), x.numpy().mean())
    small = F.interpolate(x, 1, mode="bilinear", antialias=True).numpy()
    plain = F.interpolate(x, 1, mode="bilinear").numpy()
    assert abs(small - x.numpy().mean()).max() < abs(plain - x.numpy().mean()).max()


@pytest.mark.parametrize("align", [True, False])
def test_the_unit_matrix_looks_at_the_image_itself(align: bool) -> None:
    theta = ox.tensor(np.eye(2, 3)[None].repeat(2, 0))
    grid = F.affine_grid(theta, X.shape, align)
    for mode in ("bilinear", "nearest", "bicubic"):
        assert np.allclose(F.grid_sample(ox.tensor(X), grid, mode, align_corners=align).numpy(), X)
    mirrored = F.affine_grid(theta * ox.tensor([[-1.0], [1.0]]), X.shape, align)
    assert np.allclose(F.grid_sample(ox.tensor(X), mirrored, align_corners=align).numpy(), X[..., ::-1])


def test_what_lies_outside() -> None:
    grid = ox.full((2, 1, 1, 2), 5.0, dtype=ox.float64)
    x = ox.tensor(X)
    assert not F.grid_sample(x, grid).numpy().any()
    assert not F.grid_sample(x * float("inf"), grid).numpy().any(), "not even where the image is no number"
    border = F.grid_sample(x, grid, padding_mode="border").numpy()
    assert np.array_equal(border[..., 0, 0], X[..., -1, -1])


@pytest.mark.parametrize(("kernel", "dilation", "padding", "stride"), [(2, 1, 0, 1), ((3, 2), (1, 2), (1, 0), (2, 1))])
def test_columns(kernel: Any, dilation: Any, padding: Any, stride: Any) -> None:
    """A convolution is a product with the columns, and folding them again counts how many met each place."""
    x = ox.tensor(X)
    columns = F.unfold(x, kernel, dilation, padding, stride)
    kh, kw = (kernel, kernel) if isinstance(kernel, int) else kernel
    w = ox.tensor(R.normal(size=(4, 3, kh, kw)))
    y = F.conv2d(x, w, None, stride, padding, dilation)
    assert np.allclose((w.reshape(4, -1) @ columns).numpy(), y.numpy().reshape(2, 4, -1))
    count = F.fold(
        F.unfold(ox.ones(2, 3, 6, 5, dtype=ox.float64), kernel, dilation, padding, stride),
        (6, 5),
        kernel,
        dilation,
        padding,
        stride,
    )
    assert np.allclose(F.fold(columns, (6, 5), kernel, dilation, padding, stride).numpy(), count.numpy() * X)


def test_shuffles_undo_each_other() -> None:
    x = ox.tensor(R.normal(size=(2, 8, 3, 4)))
    y = F.pixel_shuffle(x, 2)
    assert y.shape == (2, 2, 6, 8)
    assert y.numpy()[0, 0, 0, 1] == x.numpy()[0, 1, 0, 0]
    assert np.array_equal(F.pixel_unshuffle(y, 2).numpy(), x.numpy())
    mixed = F.channel_shuffle(x, 2).numpy()
    assert np.array_equal(mixed[:, :4], x.numpy()[:, [0, 4, 1, 5]])
    assert np.array_equal(F.channel_shuffle(ox.tensor(mixed), 4).numpy(), x.numpy())


def test_errors() -> None:
    x = ox.tensor(X)
    for wrong in (
        lambda: F.interpolate(x),
        lambda: F.interpolate(x, 3, mode="sharp"),
        lambda: F.interpolate(x, 3, mode="bilinear", align_corners=True, antialias=True),
        lambda: F.grid_sample(x, ox.zeros(2, 1, 1, 2), "cubic"),
        lambda: F.pixel_shuffle(x, 0),
    ):
        with pytest.raises(ArgumentError):
            wrong()
    for wrong in (
        lambda: F.interpolate(x, 3, mode="linear"),
        lambda: F.grid_sample(x, ox.zeros(1, 1, 1, 2)),
        lambda: F.affine_grid(ox.zeros(2, 2, 2), X.shape),
        lambda: F.pixel_shuffle(x, 2),
        lambda: F.unfold(x, 9),
        lambda: F.fold(x, (3, 3), 2),
    ):
        with pytest.raises(ShapeError):
            wrong()


LOOK = ox.tensor(R.uniform(-1.3, 1.3, (1, 4, 3, 2)).astype(np.float32))
FUNCTIONS: dict[str, Any] = {
    "nearest": nn.Upsample(scale_factor=2),
    "bilinear": nn.Upsample(scale_factor=1.5, mode="bilinear"),
    "corners": nn.UpsamplingBilinear2d(scale_factor=1.5),
    "to a size": lambda x: F.interpolate(x, (5, 4), mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "antialias": lambda x: F.interpolate(x, (3, 4), mode="bilinear", antialias=True),
    "area": lambda x: F.interpolate(x, (3, 4), mode="area"),
    "unfold": nn.Unfold(3, padding=1, stride=2),
    "fold": lambda x: F.fold(F.unfold(x, 2), x.shape[2:], 2),
    "pixel shuffle": lambda x: F.pixel_shuffle(x, 2),
    "pixel unshuffle": lambda x: F.pixel_unshuffle(x, 2),
    "channel shuffle": nn.ChannelShuffle(2),
    "grid": lambda x: F.grid_sample(x, LOOK.expand(x.shape[0], 4, 3, 2), padding_mode="reflection"),
    "affine": lambda x: F.grid_sample(
        x, F.affine_grid(x.mean((2, 3))[:, :3].unsqueeze(1).expand(x.shape[0], 2, 3), x.shape)
    ),
}


@rows("name", FUNCTIONS)
def test_recorded_with_open_sizes(name: str) -> None:
    assert holds_elsewhere(FUNCTIONS[name], (2, 4, 6, 8), (3, 4, 10, 12))
