"""Linear algebra in ox and in PyTorch: values, gradients of first and second order, refusals."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from sides import assert_same, check_gradient, check_value, run, split, torch

import ox

_random = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return _random.standard_normal(shape)


# a, b square; p positive-definite; w wide, t tall; v, u vectors; m, n matrices to solve for
ARRAYS = {
    "a": normal(3, 3) + 3 * np.eye(3),
    "b": normal(2, 4, 4) + 3 * np.eye(4),
    "big": normal(8, 8) + 5 * np.eye(8),
    "p": (lambda x: x @ x.swapaxes(-1, -2) + 0.5 * np.eye(4))(normal(2, 4, 4)),
    "w": normal(3, 5),
    "t": normal(2, 5, 3),
    "v": normal(3),
    "u": normal(4),
    "m": normal(3, 2),
    "n": normal(4, 2),
    "c": normal(2, 3, 3),
}

DIFFERENTIABLE = """
L.det(a); L.det(b); L.det(big); L.slogdet(b); L.slogdet(big)[1]; T.logdet(p); L.inv(a); L.inv(b); L.inv_ex(b)[0]
L.solve(a, m); L.solve(a, v); L.solve(b, n); L.solve(b, u.expand(2, 4)); L.solve(b, b @ b, left=False)
L.solve(a, c @ c); L.solve_ex(b, n)[0]
L.solve_triangular(a, m, upper=True); L.solve_triangular(a, m, upper=False); L.solve_triangular(b, n, upper=True)
L.solve_triangular(b, b @ b, upper=False, left=False); L.solve_triangular(a, m, upper=True, unitriangular=True)
L.cholesky(p); L.cholesky(p, upper=True); L.cholesky_ex(p)[0]; T.cholesky_solve(n, L.cholesky(p))
T.cholesky_solve(n, L.cholesky(p, upper=True), upper=True); T.cholesky_inverse(L.cholesky(p))
L.pinv(w); L.pinv(t); L.pinv(a); L.pinv(w, rtol=1e-3); L.lstsq(t, t[..., :2] * 2 + 1)[0]
L.lstsq(t[0], t[1])[0]
L.qr(a); L.qr(w); L.qr(t); L.qr(b)[1]
L.svdvals(w); L.svdvals(b); L.eigvalsh(p); L.eigvalsh(p, "U"); (lambda e: e[1].square() @ e[0][..., None])(L.eigh(p))
(lambda s: s[0].abs() @ s[2].abs() * s[1].sum())(L.svd(a)); (lambda s: s[0].square())(L.svd(t, full_matrices=False))
(lambda s: s[2].square() * s[1][..., None])(L.svd(w, full_matrices=False)); L.svd(w)[1]
L.matrix_exp(a * 0.3); L.matrix_exp(b); L.matrix_exp(a * 3)
L.matrix_power(a, 3); L.matrix_power(b, -2); L.matrix_power(a, 0) * a; L.matrix_power(a, 1)
L.multi_dot([a, m, m.T, a]); L.multi_dot([v, a, m]); L.multi_dot([v, a, v]); L.multi_dot([w.T, a, v])
L.vector_norm(a); L.vector_norm(w, 3, 1); L.vector_norm(b, float("inf"), (0, 1), keepdim=True)
L.matrix_norm(b); L.matrix_norm(b, "nuc"); L.matrix_norm(w, 1); L.matrix_norm(w, -1, keepdim=True)
L.matrix_norm(b, float("inf")); L.matrix_norm(b, -float("inf")); L.matrix_norm(b, 2); L.matrix_norm(b, -2, (0, 1))
L.norm(a); L.norm(b); L.norm(w, "fro"); L.norm(w, 2); L.norm(v, 3); L.norm(b, 1, dim=(0, 2)); L.norm(b, 2, dim=1)
L.norm(b, dim=(1, 2), keepdim=True); L.norm(w, "nuc"); L.norm(b, 0.5, 0)
L.cond(a); L.cond(w, 2); L.cond(b, -2); L.cond(a, "nuc")
L.cross(m.T[:1].expand(2, 3), c[0, :2]); L.vecdot(a, c); L.vecdot(a, c, dim=0); L.diagonal(b); L.matmul(a, m)
L.diagonal(b, offset=1, dim1=0, dim2=2); L.vander(v); L.vander(v, N=2)
L.tensorinv(b[0].reshape(2, 2, 4), ind=2); L.tensorinv(b[0].reshape(4, 2, 2), ind=1)
L.tensorsolve(b[0].reshape(2, 2, 4), m[:2]); L.tensorsolve(b[0].reshape(4, 2, 2), u)
"""
VALUES = """
L.matrix_rank(a); L.matrix_rank(w); L.matrix_rank(c * 0); L.matrix_rank(b, rtol=0.5); L.matrix_rank(p, hermitian=True)
L.matrix_rank(b, atol=3.0); L.slogdet(-a); L.inv_ex(a * 0)[1]; L.cholesky_ex(-p)[1]; L.solve_ex(a * 0, m)[1]
L.lstsq(t, t[..., :2])[2]; L.qr(t, "complete")[1].abs(); L.qr(w, "r")[1].abs(); L.matrix_exp(a * 0)
L.matrix_exp(a * 40); L.cond(b, 1); L.cond(b, "fro"); L.cond(a, float("inf"))
L.svd(t)[0].shape == (2, 5, 5); L.det(a[:0, :0]); L.pinv(w[:, :0]).shape == (0, 3); L.pinv(p, hermitian=True)
L.det(a * 0); L.lstsq(t, t[..., :2] + 1, driver="gels")[1]
"""
REFUSED = """
L.det(w); L.inv(a * 0); L.inv(w); L.solve(a, n); L.solve(a * 0, m); L.cholesky(-p); L.cholesky(w); L.eigh(w); L.det(v)
L.qr(v); L.qr(a, "most"); L.svd(v); L.matrix_power(w, 2); L.multi_dot([a]); L.multi_dot([a, v, a]); L.matrix_norm(a, 3)
L.matrix_norm(a, "sum"); L.matrix_norm(v); L.matrix_norm(a, dim=(0, 0)); L.cond(w, 1); L.pinv(v); L.lstsq(t, m)
L.inv_ex(a * 0, check_errors=True); L.cholesky_ex(-p, check_errors=True); L.matrix_exp(w); L.tensorinv(w, ind=1)
L.solve(T.ones(3, 3, dtype=T.int64), T.ones(3, 1, dtype=T.int64)); L.eigh(a, "X"); L.cross(w, w); L.norm(b, 3)
L.qr(T.ones(2, 2, dtype=T.float16))
"""


def arrays() -> dict[str, Any]:
    return dict(ARRAYS)


@pytest.fixture(autouse=True)
def _names(monkeypatch: pytest.MonkeyPatch) -> None:
    """L stands for the linalg of the side."""
    import sides

    plain = sides.names
    monkeypatch.setattr(sides, "names", lambda a, side: {**plain(a, side), "L": (torch if side else ox).linalg})


@pytest.mark.parametrize("expression", split(DIFFERENTIABLE))
@pytest.mark.filterwarnings("ignore")
def test_gradients(expression: str) -> None:
    check_gradient(expression, arrays(), [n for n in ARRAYS if re.search(rf"\b{n}\b", expression)])


@pytest.mark.parametrize("expression", split(VALUES))
@pytest.mark.filterwarnings("ignore")
def test_values(expression: str) -> None:
    check_value(expression, arrays())


@pytest.mark.parametrize("expression", split(DIFFERENTIABLE)[::3])
@pytest.mark.filterwarnings("ignore")
def test_float32(expression: str) -> None:
    single = {name: a.astype(np.float32) for name, a in arrays().items()}
    check_value(expression, single, 2e-3, 2e-4)


@pytest.mark.parametrize("expression", split(REFUSED))
@pytest.mark.filterwarnings("ignore")
def test_refusals(expression: str) -> None:
    with pytest.raises(Exception):  # noqa: B017 (whatever PyTorch raises)
        run(expression, arrays(), 1)
    with pytest.raises(ox.OxError):
        run(expression, arrays(), 0)


def test_factors_multiply_back() -> None:
    """Vectors are only given up to their signs, so they are not compared but put together again."""
    t = ox.tensor(ARRAYS["t"])
    U, S, Vh = ox.linalg.svd(t)
    whole = U[..., :3] * S.unsqueeze(-2) @ Vh
    assert_same(whole, torch.tensor(ARRAYS["t"]))
    values, vectors = ox.linalg.eigh(ox.tensor(ARRAYS["p"]))
    assert_same(vectors * values.unsqueeze(-2) @ vectors.mT, torch.tensor(ARRAYS["p"]))
