"""Functions that PyTorch counts as differentiable where their gradient is zero, or of a part of their inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox import nn

X, Y, EMPTY = [1.5, -2.5, 3.0], [2.0, 0.0, 3.0], []
NONE, ONE = [0.0] * 3, [1.0] * 3
INDEX = ox.zeros(0, dtype=ox.int64)

# a call, its inputs, and the gradients of the sum of what it gives, as PyTorch 2.13 has them
CASES: dict[str, tuple[Callable[..., Any], list[list[float]], list[list[float]]]] = {
    "div, floor": (lambda a, b: ox.div(a, b, rounding_mode="floor"), [X, Y], [NONE, NONE]),
    "div, trunc": (lambda a, b: ox.div(a, b, rounding_mode="trunc"), [X, Y], [NONE, NONE]),
    "floor_divide": (ox.floor_divide, [X, Y], [NONE, NONE]),
    "floor_divide_": (lambda a, b: (a * 1).floor_divide_(b), [X, Y], [NONE, NONE]),
    "of a number": (lambda a: ox.div(1.0, a, rounding_mode="floor"), [Y], [NONE]),
    "fill": (lambda a: ox.fill(a, 2.0), [X], [NONE]),
    "fill with a tensor": (lambda a, b: ox.fill(a, b.sum()), [X, Y], [NONE, [3.0] * 3]),
    "fill_ with a tensor": (lambda a, b: (a * 1).fill_(b.sum()), [X, Y], [NONE, [3.0] * 3]),
    "gather nothing": (lambda a: a.gather(0, INDEX), [X], [NONE]),
    "nextafter": (ox.nextafter, [X, Y], [[1.0, 1.0, 0.0], NONE]),
    "heaviside": (ox.heaviside, [Y, X], [NONE, [0.0, 1.0, 0.0]]),
    "copysign": (ox.copysign, [X, Y], [[1.0, -1.0, 1.0], NONE]),
    "cat of an empty vector": (lambda a, b: ox.cat([a, b[None]], 1), [EMPTY, X], [EMPTY, ONE]),
    "addr without": (lambda a, b: ox.addr(ox.outer(a, b), b, b, beta=0, alpha=0), [X, Y], [NONE, NONE]),
    "addmm without": (lambda a, b: ox.addmm(a, ox.outer(b, b), ox.ones(3, 1), beta=0), [[1.0], Y], [[0.0], [10.0] * 3]),
    "addmv without": (lambda a: ox.addmv(a, ox.ones(3, 3), ox.ones(3), beta=0), [X], [NONE]),
    "matrix_power 0": (lambda a: ox.linalg.matrix_power(ox.outer(a, a), 0), [X], [NONE]),
    "slice_scatter over all": (lambda a, b: ox.slice_scatter(a, b), [X, Y], [NONE, ONE]),
    "eq_": (lambda a, b: (a * 1).eq_(b), [X, Y], [NONE, NONE]),
    "lt_ of a number": (lambda a: (a * 1).lt_(1), [X], [NONE]),
    "bernoulli": (lambda a: ox.bernoulli(a.abs() / 4), [X], [NONE]),
    "poisson": (lambda a: ox.poisson(a.abs()), [X], [NONE]),
    "binomial": (lambda a, b: ox.binomial(a.abs().ceil(), b / 4), [X, Y], [NONE, NONE]),
    "normal": (lambda a, b: ox.normal(a, b), [X, Y], [NONE, NONE]),
    "histogram's counts": (lambda a: ox.histogram(a, 2).hist, [X], [NONE]),
    "histogram's edges": (lambda a: ox.histogram(a, 2).bin_edges, [X], [[0.0, 1.5, 1.5]]),
    "lstsq's residuals": (lambda a, b: ox.linalg.lstsq(a[:, None], b[:, None]).residuals, [X, Y], [NONE, NONE]),
    "sign": (ox.sign, [X], [NONE]),
    "round": (ox.round, [X], [NONE]),
    "trunc": (ox.trunc, [X], [NONE]),
}


@rows("name", CASES)
def test_gradients_beside_pytorch(name: str) -> None:
    call, inputs, expected = CASES[name]
    for alone in [*range(len(inputs)), None]:
        leaves = [ox.tensor(x, dtype=ox.float32, requires_grad=alone in (i, None)) for i, x in enumerate(inputs)]
        y = call(*leaves)
        assert y.requires_grad, alone
        y.sum().backward()
        for i, leaf in enumerate(leaves):
            if alone in (i, None):
                assert leaf.grad.tolist() == expected[i], (alone, i)
            else:
                assert leaf.grad is None


def test_nothing_follows_where_no_gradient_is_wanted() -> None:
    x = ox.tensor(X, requires_grad=True)
    with ox.no_grad():
        assert not ox.div(x, 2, rounding_mode="floor").requires_grad and not ox.fill(x, 1).requires_grad
    assert not ox.floor_divide(x.detach(), 2).requires_grad
    assert not ox.bernoulli(ox.ones(3)).requires_grad


def test_a_zero_gradient_is_recorded() -> None:
    def step(x: ox.Tensor) -> Any:
        y = ox.div(x, ox.tensor(Y), rounding_mode="trunc") + ox.floor_divide(x, 2) + x
        return ox.autograd.grad(y.sum(), x)[0]

    x = ox.tensor(X, requires_grad=True)
    compiled = ox.compile(step)
    for call in (step, compiled, compiled):
        assert call(x).tolist() == ONE


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_ctc_loss_of_a_target_that_cannot_be_spelled(reduction: str) -> None:
    """inf and NaN in the time that the sequence has, or zeros; the other sequences are not touched."""
    values = np.random.RandomState(0).randn(4, 3, 5).astype(np.float32)

    def gradient(zero_infinity: bool) -> tuple[Any, Any]:
        x = ox.tensor(values, requires_grad=True)
        targets, lengths = ox.tensor([[1, 2, 3], [3, 1, 2], [4, 2, 1]]), ox.tensor([2, 4, 4])
        loss = nn.functional.ctc_loss(
            x.log_softmax(-1), targets, lengths, ox.tensor([3, 3, 3]), reduction=reduction, zero_infinity=zero_infinity
        )
        loss.sum().backward()
        return loss.detach().numpy(), x.grad.numpy()

    loss, grad = gradient(False)
    other, zeros = gradient(True)
    assert np.isinf(loss).sum() == 1 and np.isfinite(other).all()
    assert np.isnan(grad).sum(axis=(1, 2)).tolist() == [5, 5, 0, 0]
    assert np.isnan(grad[:2, 0]).all() and not zeros[:, 0].any() and zeros[:, 1:].any()
    assert np.array_equal(grad[:, 1:], zeros[:, 1:])
