"""Gradients where a function has a corner, a pole or NaN, and values where there is nothing to work on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
import ox.nn.functional as F
from ox.errors import DTypeError, ShapeError

inf, nan = float("inf"), float("nan")


def slopes(f: Callable[..., ox.Tensor], *values: Any) -> list[Any]:
    """The gradients of the sum of f, which can be followed once more."""
    x = [ox.tensor(v, dtype=ox.float64, requires_grad=True) for v in values]
    y = f(*x)
    found = ox.autograd.grad(y.sum(), x, create_graph=True)
    followed = [(g * g).sum() for g in found if g.requires_grad]
    if followed:
        ox.autograd.grad(sum(followed), x, allow_unused=True)
    return [g.tolist() for g in found]


# function, inputs, gradients
CORNERS: list[tuple[Callable[..., ox.Tensor], list[Any], list[Any]]] = [
    (ox.atan2, [[0.0, 0.0, 1.0], [0.0, -0.0, 0.0]], [[0, 0, 0], [0, 0, -1]]),
    (lambda x, m: ox.clamp(x, max=m), [[1.0, 2, 0], [1.0, 1, 1]], [[1, 0, 1], [0, 1, 0]]),
    (lambda x, m: ox.clamp(x, min=m), [[1.0, 2, 0], [1.0, 1, 1]], [[1, 1, 0], [0, 0, 1]]),
    (ox.clamp, [[1.0, 2, 0, 1.5], [1.0, 1, 1, 2], [1.0, 1.5, 2, 1]], [[1, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 1]]),
    (ox.logit, [[0.0, 0.5, 1.0]], [[inf, 4, inf]]),
    (lambda x: ox.logit(x, 0.1), [[0.0, 0.5, 1.0]], [[0, 4, 0]]),
    (ox.max, [[1.0, nan, 2, nan]], [[0, 0.5, 0, 0.5]]),
    (ox.min, [[1.0, nan, 2]], [[0, 1, 0]]),
    (lambda x: x.norm(0), [[1.0, 0, 2]], [[0, 0, 0]]),
    (lambda a, b: ox.cdist(a, b, 0), [[[1.0, 2]], [[1.0, 3]]], [[[0, 0]], [[0, 0]]]),
    (lambda a: F.pdist(a, 0), [[[1.0, 2], [1, 3]]], [[[0, 0], [0, 0]]]),
    (lambda a, b: F.pairwise_distance(a, b, 0), [[[1.0, 2]], [[1.0, 3]]], [[[0, 0]], [[0, 0]]]),
    (lambda x: F.lp_pool1d(x, inf, 2), [[[1.0, -5, 2, 3]]], [[[0, -1, 0, 1]]]),
    (lambda x: F.lp_pool2d(x, -inf, 2), [[[[1.0, -5], [2, 3]]]], [[[[1, 0], [0, 0]]]]),
]


@rows(("f", "values", "expected"), CORNERS)
def test_corners(f: Callable[..., ox.Tensor], values: list[Any], expected: list[Any]) -> None:
    with np.errstate(all="ignore"):
        for got, want in zip(slopes(f, *values), expected, strict=True):
            np.testing.assert_array_equal(got, want)


@rows("name", ["ceil", "floor", "round", "trunc", "sign", "sgn"])
def test_steps_pass_nothing_back(name: str) -> None:
    x = ox.tensor([1.5, nan, -inf, 2], requires_grad=True)
    above = ox.tensor([nan, inf, -inf, 1], requires_grad=True)
    (g,) = ox.autograd.grad(getattr(ox, name)(x), x, above, create_graph=True)
    assert g.tolist() == [0, 0, 0, 0]
    assert ox.autograd.grad(g.sum(), above)[0].tolist() == [0, 0, 0, 0]


def test_values_at_the_ends() -> None:
    assert ox.sign(ox.tensor([nan, -inf, 0.0, 2])).tolist() == [0, -1, 0, 1]
    assert F.lp_pool1d(ox.tensor([[[1.0, 5, 2, 3]]]), inf, 2).tolist() == [[[5, 3]]]
    assert F.lp_pool1d(ox.tensor([[[-7.0, -5, 2]]]), -inf, 2, ceil_mode=True).tolist() == [[[5, 2]]]
    assert F.lp_pool3d(ox.arange(8.0).reshape(1, 1, 2, 2, 2), inf, 2).item() == 7
    logits, classes = ox.tensor([[1.0, 2, 3], [0, 1, 1]]), ox.tensor([0, 1])
    for weight in ([0.0, 0, 0], [0.0, 0, 1]):
        assert F.cross_entropy(logits, classes, ox.tensor(weight), label_smoothing=0.1).isnan()


@pytest.mark.filterwarnings("ignore")
def test_spread_of_too_few() -> None:
    for x in (ox.zeros(0), ox.zeros(0, 3), ox.tensor(1.0)):
        assert x.var().isnan() and x.std().isnan() and x.var(0).isnan().all() and x.std(0).isnan().all()
    assert ox.tensor(1.0).var(0, correction=0).item() == 0
    assert ox.zeros(0, 3).std(0).shape == (3,) and ox.tensor(1.0).std(0, keepdim=True).shape == ()
    assert ox.arange(2.0).var(correction=3).item() == inf


@pytest.mark.parametrize("dtype", [ox.uint8, ox.int8])
def test_small_numbers(dtype: ox.dtype) -> None:
    x = ox.tensor([[1, 2], [3, 0]], dtype=dtype)
    assert (x @ x).tolist() == [[7, 2], [3, 6]] and (x @ x).dtype == dtype
    assert (-x).tolist() == np.negative(x.numpy()).tolist() and x.relu().tolist() == x.tolist()
    expected = ox.uint8 if dtype == ox.uint8 else ox.bool
    assert x.any().dtype == x.all(0).dtype == expected and x.all(0).tolist() == [1, 0]


def test_what_is_refused() -> None:
    bools, ints, floats = ox.tensor([True]), ox.tensor([1]), ox.tensor([0.5])
    for a, b in ((bools, bools), (bools, ints), (ints, bools), (bools, 1), (1.0, bools), (ints, True)):
        with pytest.raises(DTypeError):
            a - b
    for condition in (floats, ints):
        with pytest.raises(DTypeError, match="condition"):
            ox.where(condition, 1.0, 2.0)
    assert ox.where(ints.to(ox.uint8), 1.0, 2.0).tolist() == [1]
    with pytest.raises(DTypeError, match="default"):
        ox.set_default_dtype(ox.int32)
    assert ox.get_default_dtype() == ox.float32
    for loss in (F.binary_cross_entropy, F.binary_cross_entropy_with_logits, F.kl_div):
        with pytest.raises(DTypeError, match=loss.__name__):
            loss(floats, ints)
    for loss in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss):
        assert loss(floats, ints).dtype == ox.float32
        with pytest.raises(DTypeError):
            loss(ints, ints)
    for area in (ox.trapz, ox.cumulative_trapezoid):
        with pytest.raises(ShapeError, match="dimension"):
            area(ox.tensor(1.0))
