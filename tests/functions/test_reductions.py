"""Functions over dimensions, against NumPy's own."""

from __future__ import annotations

import numpy as np
import pytest
from rows import rows

import ox

R = np.random.default_rng(8)
X = R.normal(size=(3, 4, 5))
Z = np.where(np.arange(21).reshape(3, 7) % 4 == 1, np.nan, R.normal(size=(3, 7)))
I = R.integers(-5, 6, (4, 6))  # noqa: E741


@rows("dim", [None, 0, -1, (0, 2)])
@rows("keepdim", [False, True])
def test_like_numpy(dim: object, keepdim: bool) -> None:
    x, axes = ox.tensor(X), {"axis": dim, "keepdims": keepdim}
    for name, theirs in (("prod", np.prod), ("amin", np.min), ("amax", np.max), ("sum", np.sum), ("mean", np.mean)):
        np.testing.assert_allclose(getattr(ox, name)(x, dim, keepdim).numpy(), theirs(X, **axes), rtol=1e-12)
    for correction in (0, 1, 2):
        expected = np.var(X, ddof=correction, **axes)
        np.testing.assert_allclose(ox.var(x, dim, correction, keepdim).numpy(), expected, rtol=1e-12)
        np.testing.assert_allclose(ox.std(x, dim, correction, keepdim).numpy(), np.sqrt(expected), rtol=1e-12)
    np.testing.assert_allclose(ox.norm(x, 3, dim, keepdim).numpy(), (np.abs(X) ** 3).sum(**axes) ** (1 / 3), rtol=1e-12)
    np.testing.assert_allclose(ox.norm(x, 2, dim, keepdim).numpy(), np.sqrt((X**2).sum(**axes)), rtol=1e-12)
    if dim is not None:
        expected = np.log(np.exp(X).sum(**axes))
        np.testing.assert_allclose(ox.logsumexp(x, dim, keepdim).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_running(dim: int) -> None:
    x = ox.tensor(X)
    np.testing.assert_allclose(x.cumsum(dim).numpy(), X.cumsum(dim), rtol=1e-12)
    np.testing.assert_allclose(x.cumprod(dim).numpy(), X.cumprod(dim), rtol=1e-12)
    np.testing.assert_allclose(x.logcumsumexp(dim).numpy(), np.log(np.exp(X).cumsum(dim)), rtol=1e-10)
    for found, theirs in ((x.cummax(dim), np.maximum), (x.cummin(dim), np.minimum)):
        np.testing.assert_array_equal(found.values.numpy(), theirs.accumulate(X, dim))
        np.testing.assert_array_equal(np.take_along_axis(X, found.indices.numpy(), dim), found.values.numpy())
    assert ox.tensor([2, 5, 5, 1]).cummax(0).indices.tolist() == [0, 1, 2, 2]  # the last of equals
    assert ox.tensor([1, 2, 3], dtype=ox.int8).cumsum(0).dtype == ox.int64


@pytest.mark.parametrize("dim", [None, 0, 1])
def test_medians_and_quantiles(dim: int | None) -> None:
    z = ox.tensor(Z)
    filled = np.nan_to_num(Z, nan=0.3)
    shares = np.array([0.0, 0.25, 0.6, 1.0])
    for method in ("linear", "lower", "higher", "midpoint", "nearest"):
        got = ox.quantile(ox.tensor(filled), ox.tensor(shares), dim, interpolation=method).numpy()
        np.testing.assert_allclose(got, np.quantile(filled, shares, axis=dim, method=method), rtol=1e-12)
    np.testing.assert_allclose(ox.nanquantile(z, 0.4, dim).numpy(), np.nanquantile(Z, 0.4, axis=dim), rtol=1e-12)
    np.testing.assert_allclose(ox.nansum(z, dim).numpy(), np.nansum(Z, axis=dim), rtol=1e-12)
    np.testing.assert_allclose(ox.nanmean(z, dim).numpy(), np.nanmean(Z, axis=dim), rtol=1e-12)
    assert np.isnan(ox.quantile(z, 0.5).item()) and np.isnan(z.median().item())
    assert ox.count_nonzero(ox.tensor(I), dim).tolist() == np.count_nonzero(I, axis=dim).tolist()


def test_the_middle_is_the_lower_one() -> None:
    assert ox.tensor([4.0, 1.0, 3.0, 2.0]).median().item() == 2.0
    values, indices = ox.tensor([[4.0, 1.0, 3.0, 2.0]]).median(1)
    assert values.tolist() == [2.0] and indices.tolist() == [3]
    assert ox.tensor([np.nan, 1.0, 3.0]).nanmedian().item() == 1.0
    assert np.isnan(ox.tensor([np.nan, np.nan]).nanmedian().item())
    assert np.isnan(ox.tensor([]).median().item())


def test_mode_is_the_smallest_of_the_most_frequent() -> None:
    values, indices = ox.tensor([[3, 1, 3, 1, 2], [5, 5, 5, 0, 0]]).mode(1)
    assert values.tolist() == [1, 5] and indices.tolist() == [3, 2]


def test_products_with_zeros_have_gradients() -> None:
    """Where one factor is zero, only it has a slope: the product of the others."""
    x = ox.tensor([2.0, 0.0, 3.0], requires_grad=True)
    x.prod().backward()
    assert x.grad is not None and x.grad.tolist() == [0.0, 6.0, 0.0]
    y = ox.tensor([2.0, 0.0, 3.0, 4.0], requires_grad=True)
    y.cumprod(0).sum().backward()
    assert y.grad is not None and y.grad.tolist() == [1.0, 2 + 6 + 24, 0.0, 0.0]


def test_gradients_at_zero_are_zero() -> None:
    for p in (2, 1, 3, 0.5, 1.5, float("inf")):
        x = ox.zeros(3, requires_grad=True)
        x.norm(p).backward()
        assert x.grad is not None and x.grad.tolist() == [0.0, 0.0, 0.0]
    x = ox.ones(3, requires_grad=True)
    x.std().backward()
    assert x.grad is not None and x.grad.tolist() == [0.0, 0.0, 0.0]


def test_renorm_and_dist() -> None:
    x = ox.tensor([[3.0, 4.0], [0.3, 0.4]])
    np.testing.assert_allclose(ox.renorm(x, 2, 0, 1.0).numpy(), [[0.6, 0.8], [0.3, 0.4]], rtol=1e-6)
    assert ox.dist(x[0], x[0] - 3, 1).item() == 6


@rows(
    "call",
    [
        lambda: ox.ones(2, 3).prod(2), lambda: ox.tensor([1]).std(), lambda: ox.tensor([1]).norm(),
        lambda: ox.ones(2).norm("nuclear"), lambda: ox.ones(2).renorm(2, 0, 1.0), lambda: ox.ones(2, 2).cumsum(2),
        lambda: ox.tensor([1]).logcumsumexp(0), lambda: ox.zeros(0, 3).median(0), lambda: ox.zeros(0, 3).mode(0),
        lambda: ox.ones(3).quantile(1.5), lambda: ox.ones(3).quantile(0.5, interpolation="cubic"),
        lambda: ox.ones(3).quantile(ox.ones(1, 1)), lambda: ox.tensor([1]).quantile(0.5),
        lambda: ox.tensor([True]).median(), lambda: ox.zeros(0).aminmax(),
    ],
)  # fmt: skip
def test_refusals(call: object) -> None:
    with pytest.raises(ox.OxError):
        call()  # type: ignore[operator]


def test_numpys_names_for_dimensions() -> None:
    x = ox.tensor(X)
    assert ox.sum(input=x, axis=1, keepdims=True).equal(x.sum(1, True))
    assert x.std(axis=(0, 2)).equal(x.std((0, 2)))
    assert x.max(axis=1).indices.equal(x.argmax(axis=1))
    assert ox.add(x, other=2, alpha=3).equal(x + 6)
