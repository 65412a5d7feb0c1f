"""Products, distances, differences and covariance, beside PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from sides import check_error, check_gradient, check_value, split

R = np.random.default_rng(4)
ARRAYS = {
    "m": R.normal(size=(3, 4)).astype(np.float32),
    "n": R.normal(size=(3, 4)).astype(np.float32),
    "q": R.normal(size=(4, 4)).astype(np.float32),
    "k": R.normal(size=(2, 3, 4)).astype(np.float32),
    "l": R.normal(size=(2, 4, 5)).astype(np.float32),
    "x": R.normal(size=(3, 4)),
    "y": R.normal(size=(4, 3)),
    "v": R.normal(size=(4,)),
    "a": R.normal(size=(3,)).astype(np.float32),
    "c": R.normal(size=(4,)).astype(np.float32),
    "i": R.integers(-4, 5, (3, 4)),
    "j": np.array([1, 2, 3]),
    "b": R.random((3, 4)) > 0.5,
    "z": np.array(2.5, np.float32),
    "p": np.array([0.0, 0.5, 2.0, 2.5], np.float32),
    "big": R.normal(size=(30, 4)).astype(np.float32),
    "h": R.normal(size=(2, 3)).astype(np.float16),
}

VALUES = """
T.einsum("ij,kj->ik", m, n); T.einsum("ij->ji", m); T.einsum("ij->", m); T.einsum("ii", q); T.einsum("ii->i", q)
T.einsum("bij,bjk->bik", k, l); T.einsum("ij,jk", m, q); T.einsum("...ij,...jk->...ik", k, l); T.einsum("...i,i", k, c)
T.einsum("i,j->ij", a, c); T.einsum("ij,ij,ij->i", m, n, m); T.einsum("bij->bj", k); T.einsum("...ij->...ji", k)
T.einsum("i,i", a, a); T.einsum(",ij", z, m); T.einsum("ij,jk,kl->il", m, q, q); T.einsum(m, [0, 1], n, [2, 1], [0, 2])
T.einsum(q, [0, 0]); T.einsum(k, [..., 0], c, [0]); T.einsum("ij , jk -> ik", m, q); T.einsum("ba,ca->cb", i, i)
T.einsum("...", k); T.einsum("ij...->j...", k); T.einsum("aB,aC->BC", m, n); T.einsum("ij,kj->ik", [m, n])
T.einsum("ij,jk->ik", h, h.t()); T.einsum("i...,j->ij...", a[:2, None] * k[:, 0], c[:2]); T.tensordot(m, q, 1)
T.tensordot(k, l, ([2], [1])); T.tensordot(m, n, 2); T.tensordot(m, n, dims=([0, 1], [0, 1])); T.tensordot(a, c, 0)
T.tensordot(k, m, dims=([1, 2], [0, 1])); T.tensordot(i, i, ([1], [1])); T.inner(m, n); T.inner(a, a); T.inner(z, m)
T.inner(k, c); T.outer(a, c); T.ger(a, c); a.outer(a); T.outer(j, j); T.kron(m, n); T.kron(a, m); T.kron(z, m)
T.kron(i, j); T.kron(k, m); T.cross(m[:, :3], n[:, :3], dim=1); T.cross(a, a + 1, dim=0); T.cross(m, n)
T.cross(k.transpose(1, 2), k.transpose(1, 2) + 1, -1)
T.mm(m, q); T.bmm(k, l); T.mv(m, c); T.dot(a, a); T.vdot(a, a); m.mm(q); m.mv(c); T.mm(i, i.T); T.dot(j, j)
T.chain_matmul(m, q, q); T.mm(h, h.T); T.vander(a); T.vander(a, 2); T.vander(a, 5, increasing=True); T.vander(j)
T.vander(j, 3, True); T.vander(a, 0); T.vander(a, 1); T.addmm(c, m, q); T.addmm(z, m, q, beta=0.5, alpha=2)
T.addmm(m, m, q, beta=0); m.addmm(m, q); T.addmm(i, i, i.T @ i); T.addmv(a, m, c); T.addmv(a, m, c, beta=2, alpha=0.5)
T.addr(m, a, c); T.addr(m, a, c, beta=0, alpha=3); T.baddbmm(z, k, l); T.baddbmm(k[:, :, :1], k, l, beta=2, alpha=-1)
T.addbmm(z, k, l); T.addbmm(a[:, None], k, l, beta=0.5, alpha=2); T.addmm(c, m, q, beta=2); T.trapezoid(m)
T.trapezoid(m, dx=0.5); T.trapezoid(m, p); T.trapezoid(m, n, dim=0); T.trapezoid(m, a, dim=0); T.trapz(m)
T.cumulative_trapezoid(m); T.cumulative_trapezoid(m, p); T.cumulative_trapezoid(m, dx=2, dim=0); T.trapezoid(i)
T.trapezoid(m[:, :1]); T.diff(m); T.diff(m, 2); T.diff(m, dim=0); T.diff(i); T.diff(b); m.diff(n=3, dim=1); m.diff(4)
T.diff(m, prepend=n, append=n[:, :1]); T.diff(j, prepend=j[:1]); m.diff(0); T.diff(m, 9); T.gradient(m)
T.gradient(m, spacing=2.0); T.gradient(m, dim=1); T.gradient(m, spacing=(p,), dim=1); T.gradient(m, spacing=[0.5, 2.0])
T.gradient(m, edge_order=2); T.gradient(m, spacing=(a.sort()[0], p)); T.gradient(m, spacing=(p,), dim=1, edge_order=2)
T.gradient(c, spacing=(p,)); T.gradient(k, dim=(0, 2)); T.gradient(m, dim=-1); T.cov(m); T.cov(a)
T.cov(m, correction=0); T.cov(m, fweights=T.tensor([1, 2, 1, 3])); T.cov(m, aweights=p + 1)
T.cov(m, fweights=T.tensor([1, 2, 1, 3]), aweights=p + 1); m.cov(); T.corrcoef(m); m.corrcoef(); T.corrcoef(a)
T.cov(i); T.cov(m, correction=2, aweights=p + 0.5); T.cdist(m, n); T.cdist(m, q); T.cdist(k, k[:1]); T.cdist(m, n, p=1)
T.cdist(m, n, p=3); T.cdist(m, n, p=float("inf")); T.cdist(m, n, p=0); T.cdist(m, n, 0.5); T.cdist(m, m); T.cdist(k, m)
T.cdist(m, n, compute_mode="use_mm_for_euclid_dist"); T.cdist(big, m); F.pdist(m); F.pdist(m, 1); F.pdist(m, 0)
F.pdist(m, float("inf")); F.pdist(m, 2.5); F.pdist(m[:1]); T.pdist(m); F.pairwise_distance(m, n)
F.pairwise_distance(m, n, 1); F.pairwise_distance(m, n, 3, 0.1, True); T.pairwise_distance(m, c)
F.pairwise_distance(a, a); F.pairwise_distance(m, n, p=float("inf")); F.cosine_similarity(m, n)
F.cosine_similarity(m, n, 0); F.cosine_similarity(k, m, -1); T.cosine_similarity(m, n, dim=1, eps=10.0)
F.cosine_similarity(m, m * 0); F.cosine_similarity(a, a, dim=0); F.cosine_similarity(m, c)
"""

GRADIENTS = """
T.einsum("ij,jk->ik", x, y); T.einsum("ij,ji", x, y); T.einsum("ij->j", x) * v; T.einsum("ij,kj->", x, x)
T.einsum("...j,j->...", x, v) ** 2; T.einsum("ii->i", x @ y) ** 2; T.einsum("ij,jk,kl->il", x, y, x)
T.einsum("i,j->ji", v, v); T.tensordot(x, y, 1); T.tensordot(x, y, ([0, 1], [1, 0])); T.inner(x, v) ** 2; T.outer(v, v)
T.kron(x, v); T.cross(y, y * y + 1, 1); x.mm(y); x.mv(v); v.dot(v); T.chain_matmul(x, y, x)
T.addmm(v[:3], x, y, beta=2, alpha=3); T.addmv(v[:3], x, v) ** 2; T.addr(x, v[:3], v)
T.baddbmm(x[:, :3], x[None], y[None]); T.addbmm(v[:3], x[None], y[None], beta=0.5); T.trapezoid(x, v) ** 2
T.trapezoid(x, dim=0) * v; T.cumulative_trapezoid(x) ** 2; x.diff() ** 2; x.diff(2, 0) ** 2; T.gradient(x)[1] ** 2
T.gradient(x, dim=1, edge_order=2)[0] ** 2; T.cov(x); T.corrcoef(x); T.cdist(x, y.T); T.cdist(x, y.T, 1)
T.cdist(x, y.T, 3); T.cdist(x, y.T, compute_mode="use_mm_for_euclid_dist"); F.pdist(x); F.pdist(x, 3)
F.pairwise_distance(x, v); F.pairwise_distance(x, v, 3); F.cosine_similarity(x, v); F.cosine_similarity(x, y.T, 0)
"""

ERRORS = """
T.einsum("ij,jk", m, n); T.einsum("ij", a); T.einsum("ij->ik", m); T.einsum("ij->ii", m); T.einsum("i.j", m)
T.einsum("ij,ij", m); T.einsum("ij,jk->ik", m, x); T.einsum("ii", m); T.einsum("i...j...", k); T.einsum("1", a)
T.tensordot(m, n, 1); T.tensordot(m, n, 3); T.inner(m, a); T.outer(m, a); T.cross(q, q); T.cross(q, q, 1)
T.cross(m, n, 1); T.mm(m, n); T.mm(a, m); T.bmm(k, k); T.bmm(m, m); T.mv(m, a); T.mv(a, m); T.dot(a, c); T.dot(m, m)
T.mm(m, y); T.dot(a, v[:3]); T.bmm(k, l[:1]); T.vander(m); T.addmm(a[:2], m, q); T.addmm(m, m, n); T.addmv(c, m, c)
T.addr(m, c, a); T.baddbmm(c, k, l); T.addbmm(c, k, l); T.diff(z); T.diff(m, -1); T.diff(m, 1, 3); T.trapezoid(m, a)
T.gradient(m, spacing=(p,)); T.gradient(m, edge_order=3); T.gradient(a[:1]); T.cov(k)
T.cov(m, fweights=T.tensor([1, 2])); T.cdist(m, a); T.cdist(m, y)
T.cdist(m, n, -1); T.cdist(m, k[:, :2, :3]); F.pdist(k); F.pdist(m, -1); T.cdist(i, i); T.cdist(m, n, 2, "x")
F.cosine_similarity(m, a); F.cosine_similarity(m, n, 5); F.pairwise_distance(m, a)
"""


@pytest.mark.parametrize("expression", split(VALUES))
def test_value(expression: str) -> None:
    check_value(expression, ARRAYS, 1e-5, 1e-5)


@pytest.mark.parametrize("expression", split(GRADIENTS))
def test_gradient(expression: str) -> None:
    """Of cdist PyTorch has no second order where distances are plain, so those are held to the first alone."""
    check_gradient(expression, ARRAYS, ("x", "y", "v"), second="dist(" not in expression or "pairwise" in expression)


@pytest.mark.parametrize("expression", split(ERRORS))
def test_error(expression: str) -> None:
    check_error(expression, ARRAYS)
