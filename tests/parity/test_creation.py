"""Making tensors, and the shapes and types of random ones, beside PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from sides import check_error, check_value, run, split

ARRAYS = {
    "m": np.ones((2, 3), np.float32),
    "i": np.ones((2, 3), np.int64),
    "w": np.array([[0.1, 0.9, 0.0], [0.2, 0.3, 0.5]], np.float32),
    "h": np.ones(2, np.float16),
}

VALUES = """
T.logspace(0, 2, 3); T.logspace(-1, 1, 5, base=2.0); T.logspace(0, 1, 1); T.logspace(0, 1, 0)
T.logspace(1, 3, 4, dtype=T.float64); T.logspace(0, 3, 4, 2, dtype=T.int64); T.full((2, 3), 1.5); T.full((2,), 3)
T.full((), True); T.full((2,), 3, dtype=T.float16); T.full((2, 0), 1.0); T.full(size=(2,), fill_value=4)
T.zeros(2, 3, dtype=T.int32); T.ones((), dtype=T.bool); T.zeros(()); T.zeros([2, 2]); T.ones(3, requires_grad=True)
T.zeros_like(m); T.ones_like(i); T.full_like(m, 2); T.full_like(i, 2.0, dtype=T.float32)
T.zeros_like(m, dtype=T.int64); T.empty_like(m).shape == (2, 3); T.ones_like(m, device="cpu", requires_grad=True)
T.zeros_like(h); T.full_like(m, fill_value=3); m.new_zeros(2); m.new_zeros((2, 3)); i.new_ones(2, 2)
m.new_full((2,), 7); m.new_full((2,), 7.5, dtype=T.float64); m.new_tensor([1, 2]); i.new_tensor([1.7, 2.2])
m.new_tensor(3); m.new_empty(2, 3).shape == (2, 3); m.new_empty((4,), dtype=T.int64).dtype == T.int64
m.new_zeros(2, requires_grad=True); m.new_tensor([1.0], dtype=T.float64); T.arange(5, device="cpu")
T.arange(start=1, end=4); T.arange(1, 2, 0.25); T.arange(0, 5, 2, dtype=T.float32); T.linspace(0, 1, steps=3)
T.linspace(start=1, end=2, steps=2); T.eye(2, 3, dtype=T.int64); T.eye(3, requires_grad=True); T.scalar_tensor(3)
T.scalar_tensor(2.5, dtype=T.float64); T.asarray([1.0, 2.0]); T.asarray(m); T.asarray([1, 2], dtype=T.float32)
T.tensor([1.0]).new_ones(1)
"""

SHAPES = """
T.rand(2, 3); T.rand((2, 3)); T.rand(2, dtype=T.float64); T.randn(4, 0); T.randn(3, requires_grad=True); T.rand(())
T.rand(2, device="cpu"); T.randint(5, (2, 3)); T.randint(2, 5, (3,)); T.randint(0, 2, (2,), dtype=T.float32)
T.randint(low=0, high=3, size=(4,)); T.randint(high=3, size=(4,)); T.randperm(5); T.randperm(4, dtype=T.int32)
T.randperm(0); T.rand_like(m); T.randn_like(m, dtype=T.float64); T.randint_like(m, 5); T.randint_like(i, 2, 5)
T.randint_like(m, 0, 3, dtype=T.int64); T.rand_like(m, requires_grad=True); T.normal(m, m); T.normal(0.0, m)
T.normal(m, 2.0); T.normal(m); T.normal(0.0, 1.0, (2, 2)); T.normal(mean=1.0, std=m); T.normal(2, 3, size=(1, 4))
T.multinomial(w, 2); T.multinomial(w, 5, replacement=True); T.multinomial(w[0], 1); w.multinomial(1); T.bernoulli(w)
w.bernoulli(); T.bernoulli(m, 0.5); T.poisson(w); T.poisson(m.double()); T.binomial(m * 10, w); m.uniform_()
m.uniform_(-1, 1); m.normal_(); m.normal_(1, 2); m.bernoulli_(0.3); m.bernoulli_(w); m.exponential_()
m.exponential_(2.0); m.log_normal_(); m.cauchy_(); m.geometric_(0.5); i.geometric_(0.5); m.random_(); i.random_(5)
i.random_(2, 5); h.uniform_(); i.bernoulli_()
"""

ERRORS = """
T.logspace(0, 1, -1); T.zeros(-1); T.rand(-1); T.rand(2, dtype=T.int64); T.randint(0, (2,))
T.randint(5, 2, (3,)); T.randperm(-1); T.normal(m, -m); T.normal(0.0, 1.0); T.multinomial(w, 4); T.multinomial(w, 0)
T.multinomial(-w, 1); T.multinomial(w * 0, 1); T.multinomial(i, 1); T.multinomial(w.reshape(1, 2, 3), 1)
T.bernoulli(w * 2); T.poisson(-w); i.uniform_(); i.normal_()
i.exponential_(); m.uniform_(1, 0); m.normal_(0, -1); m.exponential_(-1); m.geometric_(0); m.geometric_(2.0)
m.bernoulli_(2.0); i.random_(5, 2); i.log_normal_(); i.cauchy_()
"""


@pytest.mark.parametrize("expression", split(VALUES))
def test_value(expression: str) -> None:
    check_value(expression, ARRAYS)


@pytest.mark.parametrize("expression", split(SHAPES))
def test_random_shape_and_type(expression: str) -> None:
    got, expected = run(expression, ARRAYS, 0), run(expression, ARRAYS, 1)
    assert tuple(got.shape) == tuple(expected.shape)
    assert str(got.dtype) == str(expected.dtype).removeprefix("torch.")
    assert got.requires_grad == expected.requires_grad


@pytest.mark.parametrize("expression", split(ERRORS))
def test_error(expression: str) -> None:
    check_error(expression, ARRAYS)
