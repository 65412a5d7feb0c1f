"""Products, distances, differences and counts, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox.errors import ArgumentError, DTypeError, OxError, ShapeError

R = np.random.default_rng(3)
A, B, K = R.normal(size=(3, 4)), R.normal(size=(4, 3)), R.normal(size=(2, 3, 4))
V = np.sort(R.normal(size=4))
N = R.integers(0, 6, 12)
Call = Callable[..., Any]


def distances(p: float) -> Any:
    return (np.abs(A[:, None] - B.T) ** p).sum(-1) ** (1 / p)


def cross(a: Any) -> Any:
    return np.cross(a[:, :3], a[:, 1:])


CASES: list[tuple[Call, Any]] = [
    (lambda a, b, k, v: ox.einsum("ij,jk->ik", a, b), A @ B),
    (lambda a, b, k, v: ox.einsum("bij,jk->bki", k, b), np.einsum("bij,jk->bki", K, B)),
    (lambda a, b, k, v: ox.einsum("...j,j->...", k, v), K @ V),
    (lambda a, b, k, v: ox.einsum("ii", a @ b), np.trace(A @ B)),
    (lambda a, b, k, v: ox.einsum(a, [0, 1], b, [1, 2], [2, 0]), (A @ B).T),
    (lambda a, b, k, v: ox.tensordot(k, b, ([2, 1], [0, 1])), np.tensordot(K, B, ([2, 1], [0, 1]))),
    (lambda a, b, k, v: ox.inner(k, v), np.inner(K, V)),
    (lambda a, b, k, v: ox.outer(v, v), np.outer(V, V)),
    (lambda a, b, k, v: ox.kron(a, b), np.kron(A, B)),
    (lambda a, b, k, v: ox.cross(a[:, :3], a[:, 1:], 1), cross(A)),
    (lambda a, b, k, v: ox.chain_matmul(a, b, a), A @ B @ A),
    (lambda a, b, k, v: ox.vander(v, 3), np.vander(V, 3)),
    (lambda a, b, k, v: ox.addmm(a[0, :3], a, b, beta=2, alpha=3), 2 * A[0, :3] + 3 * A @ B),
    (lambda a, b, k, v: ox.addmv(v[:3], a, v, beta=0.5), V[:3] / 2 + A @ V),
    (lambda a, b, k, v: ox.addr(a, v[:3], v), A + np.outer(V[:3], V)),
    (lambda a, b, k, v: ox.baddbmm(v[:3], k, k.mT, alpha=2), V[:3] + 2 * K @ K.swapaxes(1, 2)),
    (lambda a, b, k, v: ox.addbmm(v[:3], k, k.mT), V[:3] + (K @ K.swapaxes(1, 2)).sum(0)),
    (lambda a, b, k, v: ox.diff(a, 2), np.diff(A, 2)),
    (lambda a, b, k, v: ox.trapezoid(a, v), np.trapezoid(A, V)),
    (lambda a, b, k, v: ox.gradient(a, spacing=(v,), dim=1)[0], np.gradient(A, V, axis=1)),
    (lambda a, b, k, v: ox.gradient(a, edge_order=2)[0], np.gradient(A, edge_order=2)[0]),
    (lambda a, b, k, v: ox.cov(a), np.cov(A)),
    (lambda a, b, k, v: ox.corrcoef(a), np.corrcoef(A)),
    (lambda a, b, k, v: ox.cdist(a, b.mT), distances(2)),
    (lambda a, b, k, v: ox.cdist(a, b.mT, 3), distances(3)),
    (lambda a, b, k, v: ox.cdist(a, b.mT, compute_mode="use_mm_for_euclid_dist"), distances(2)),
    (lambda a, b, k, v: ox.pdist(a), np.linalg.norm(A[[0, 0, 1]] - A[[1, 2, 2]], axis=1)),
    (
        lambda a, b, k, v: ox.cosine_similarity(a, v),
        A @ V / np.linalg.norm(A, axis=1) / np.linalg.norm(V),
    ),
]


@rows("case", range(len(CASES)))
def test_value_and_gradients(case: int) -> None:
    call, expected = CASES[case]
    given = [ox.tensor(x, requires_grad=True) for x in (A, B, K, V)]
    got = call(*given)
    assert got.shape == np.shape(expected)
    np.testing.assert_allclose(got.detach().numpy(), expected, rtol=1e-10, atol=1e-12)
    assert ox.autograd.gradcheck(call, given, order=2, elements=3)


def test_equal_points_have_distance_and_gradient_zero() -> None:
    for p in (0.5, 1.0, 2.0, 3.0):
        x = ox.tensor(A, requires_grad=True)
        ox.cdist(x, x.detach(), p).diagonal().sum().backward()
        assert x.grad.tolist() == np.zeros_like(A).tolist()


def test_a_beta_of_zero_leaves_out_what_is_nan() -> None:
    for made in (ox.addmm, lambda s, a, b, beta: ox.addmv(s[:, 0], a, b[:, 0], beta=beta)):
        assert not made(ox.full((3, 3), float("nan")), ox.ones(3, 4), ox.ones(4, 3), beta=0).isnan().any()


COUNTED: list[tuple[Call, Any]] = [
    (lambda n, v: n.unique(True, True, True), np.unique(N, return_inverse=True, return_counts=True)),
    (lambda n, v: [n.reshape(4, 3).unique(dim=0)], [np.unique(N.reshape(4, 3), axis=0)]),
    (lambda n, v: [n.sort()[0].unique_consecutive()], [np.unique(N)]),
    (lambda n, v: [n.bincount(minlength=9)], [np.bincount(N, minlength=9)]),
    (lambda n, v: [ox.bincount(n, n.double() / 2)], [np.bincount(N, N / 2)]),
    (lambda n, v: [n.double().histc(4, 0, 4)], [np.histogram(N, 4, (0, 4))[0]]),
    (lambda n, v: ox.histogram(n.double(), 5, density=True), np.histogram(N, 5, density=True)),
    (lambda n, v: ox.histogram(n.double(), ox.tensor([0.0, 2, 3, 9]).double()), np.histogram(N, [0.0, 2, 3, 9])),
    (lambda n, v: [ox.searchsorted(v, n.double() - 2)], [np.searchsorted(V, N - 2.0)]),
    (lambda n, v: [ox.bucketize(n, ox.tensor([1, 3]), right=True)], [np.digitize(N, [1, 3])]),
    (lambda n, v: [ox.isin(n, ox.tensor([1, 4]))], [np.isin(N, [1, 4])]),
]  # fmt: skip


@rows("case", range(len(COUNTED)))
def test_counts(case: int) -> None:
    call, expected = COUNTED[case]
    for got, want in zip(call(ox.tensor(N), ox.tensor(V)), expected, strict=True):
        np.testing.assert_allclose(got.numpy(), want)


def test_rows_are_searched_each_in_its_own() -> None:
    rows, values = np.sort(K, axis=-1), K[..., :2]
    got = ox.searchsorted(ox.tensor(rows), ox.tensor(values), right=True).numpy()
    expected = (rows[..., None, :] <= values[..., None]).sum(-1)
    assert got.tolist() == expected.tolist()


def test_the_cross_product_runs_along_the_first_three_of_its_first_tensor() -> None:
    rows = A[:, :3]
    got = ox.cross(ox.tensor(rows[:1]), ox.tensor(rows))  # [1, 3] beside [3, 3]
    np.testing.assert_allclose(got.numpy(), np.cross(rows[:1], rows))


@rows(
    ("call", "error"),
    [
        (lambda a, v: ox.mm(a, a), ShapeError), (lambda a, v: ox.dot(a, a), ShapeError),
        (lambda a, v: ox.mv(a, a), ShapeError),
        (lambda a, v: ox.mm(a, a.float().mT), DTypeError), (lambda a, v: ox.einsum("ij,jk", a, a), ShapeError),
        (lambda a, v: ox.einsum("ij->ii", a), ArgumentError), (lambda a, v: ox.einsum("i?", a), ArgumentError),
        (lambda a, v: ox.einsum("ij,j", a), ArgumentError), (lambda a, v: ox.outer(a, v), ShapeError),
        (lambda a, v: ox.cross(v, v), ShapeError), (lambda a, v: ox.cdist(a, v), ShapeError),
        (lambda a, v: ox.cross(a[:, :3], a[:, :1], dim=1), ShapeError),
        (lambda a, v: ox.cross(a[:, :3], v[:3]), ShapeError), (lambda a, v: ox.linalg.cross(a, v[:3]), ShapeError),
        (lambda a, v: ox.logical_and(1, v), ArgumentError), (lambda a, v: ox.logical_xor(1, 2), ArgumentError),
        (lambda a, v: v.narrow(0, ox.tensor([1]), 2), ArgumentError),
        (lambda a, v: v.narrow(0, ox.tensor(1.0), 2), ArgumentError),
        (lambda a, v: ox.cdist(a, a, -1), ArgumentError), (lambda a, v: ox.addmm(a, a, a.mT), ShapeError),
        (lambda a, v: ox.bincount(ox.tensor([-1])), ArgumentError), (lambda a, v: ox.histc(a, 0), ArgumentError),
        (lambda a, v: ox.searchsorted(a, v[:2]), ShapeError), (lambda a, v: ox.trapezoid(a, v[:2]), ShapeError),
    ],
)  # fmt: skip
def test_refused(call: Call, error: type[OxError]) -> None:
    with pytest.raises(error) as caught:
        call(ox.tensor(A), ox.tensor(V))
    assert "test_products.py" in str(caught.value)
