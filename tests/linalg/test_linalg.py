"""Linear algebra: what defines each function, gradients by finite differences, and files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
from rows import rows

import ox
from ox import linalg as L
from ox.autograd import gradcheck
from ox.errors import LinAlgError, RecordError, ShapeError
from ox.graph.record.recording import record
from ox.graph.writer.write import to_model

_random = np.random.default_rng(0)
A = _random.standard_normal((2, 4, 4)) + 2 * np.eye(4)
P = A @ A.swapaxes(-1, -2) + np.eye(4)
WIDE, TALL, B = (_random.standard_normal(s) for s in ((3, 5), (5, 3), (2, 4, 3)))


def close(got: Any, expected: Any) -> bool:
    return np.allclose(got.detach().numpy(), np.asarray(getattr(expected, "data", expected)), atol=1e-8)


def test_what_defines_each() -> None:
    a, p, b, one = ox.tensor(A), ox.tensor(P), ox.tensor(B), np.broadcast_to(np.eye(4), A.shape)
    assert close(a @ L.inv(a), one)
    assert close(a @ L.solve(a, b), b)
    assert close(L.solve(a, b.mT, left=False) @ a, b.mT)
    assert close(L.cholesky(p) @ L.cholesky(p).mT, p)
    assert close(p @ ox.cholesky_solve(b, L.cholesky(p)), b)
    assert close(L.det(a), np.linalg.det(A))
    assert close(L.slogdet(a).logabsdet.exp() * L.slogdet(a).sign, L.det(a))
    for x in (WIDE, TALL, A):
        q, r = L.qr(ox.tensor(x))
        u, s, vh = L.svd(ox.tensor(x), full_matrices=False)
        y = L.pinv(ox.tensor(x))
        assert close(q @ r, x)
        assert close(r.tril(-1), 0 * r)
        assert close(u * s.unsqueeze(-2) @ vh, x)
        assert close(ox.tensor(x) @ y @ ox.tensor(x), x)
    values, vectors = L.eigh(p)
    assert close(p @ vectors, vectors * values.unsqueeze(-2))
    assert close(L.matrix_exp(p * 0.1), vectors * (values * 0.1).exp().unsqueeze(-2) @ vectors.mT)
    assert close(L.matrix_power(a, -2) @ a @ a, one)
    assert close(L.matrix_norm(a, "nuc"), np.linalg.norm(A, "nuc", (1, 2)))
    assert L.matrix_rank(ox.tensor(np.outer(TALL[:, 0], WIDE[0]))).item() == 1
    assert close(L.multi_dot([ox.tensor(TALL), ox.tensor(WIDE), ox.tensor(TALL)]), TALL @ WIDE @ TALL)


# functions that do not care about the sign of a vector
SMOOTH: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "det": (A, L.det),
    "slogdet": (A, lambda x: L.slogdet(x).logabsdet),
    "inv": (A, L.inv),
    "solve": (A, lambda x: L.solve(x, x * x)),
    "triangular": (A, lambda x: L.solve_triangular(x, x * x, upper=True)),
    "cholesky": (P, lambda x: L.cholesky((x + x.mT) / 2)),
    "pinv wide": (WIDE, L.pinv),
    "pinv tall": (TALL, L.pinv),
    "qr tall": (TALL, L.qr),
    "qr wide": (WIDE, L.qr),
    "eigh": (P[0], lambda x: (lambda e: (e[0], e[1].abs()))(L.eigh((x + x.mT) / 2))),
    "svd tall": (TALL, lambda x: tuple(y.abs() for y in L.svd(x, full_matrices=False))),
    "svd wide": (WIDE, lambda x: tuple(y.abs() for y in L.svd(x, full_matrices=False))),
    "exp": (A * 0.5, L.matrix_exp),
    "cond": (A, L.cond),
    "lstsq": (TALL, lambda x: L.lstsq(x, x[:, :1] * x[:, 1:2], driver="gelsd")[:2]),
}


@rows("name", SMOOTH)
def test_gradients(name: str) -> None:
    x, function = SMOOTH[name]
    gradcheck(function, ox.tensor(x, requires_grad=True), order=2, elements=8)


RECORDED: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "solve": (A, lambda x: L.solve(x, x * x)),
    "inv": (A, L.inv),
    "det": (A, L.det),
    "slogdet": (A, L.slogdet),
    "cholesky": (P, L.cholesky),
    "cholesky_solve": (P, lambda x: ox.cholesky_solve(x * 2, L.cholesky(x))),
    "triangular": (A, lambda x: L.solve_triangular(x, x * 2, upper=False)),
    "power": (A, lambda x: L.matrix_power(x, 3)),
    "norm": (A, lambda x: L.matrix_norm(x, 1)),
}


@rows("name", RECORDED)
def test_files_for_any_size(name: str) -> None:
    x, function = RECORDED[name]
    graph = record(function, {"x": ox.tensor(x.astype(np.float32))}, dims={"x": ["n", "size", "size"]})
    session = onnxruntime.InferenceSession(to_model(graph).SerializeToString())
    for shape in ((2, 4), (1, 6), (3, 1)):
        n, size = shape
        other = _random.standard_normal((n, size, size)).astype(np.float32) * 0.3 + 2 * np.eye(size, dtype=np.float32)
        other = other @ other.swapaxes(-1, -2)
        expected = function(ox.tensor(other))
        for got, y in zip(
            session.run(None, {"x": other}), expected if isinstance(expected, tuple) else [expected], strict=True
        ):
            assert np.allclose(got, y.numpy(), rtol=1e-3, atol=1e-3)


def test_a_gradient_records_too() -> None:
    x = ox.tensor(P.astype(np.float32))

    def step(x: Any) -> Any:
        x = x.detach().requires_grad_()
        return ox.autograd.grad(L.solve(L.cholesky(x), x * x).sum(), x)[0]

    graph = record(step, {"x": x}, dims={"x": ["n", 4, 4]})
    session = onnxruntime.InferenceSession(to_model(graph).SerializeToString())
    assert np.allclose(session.run(None, {"x": x.numpy()})[0], step(x).numpy(), rtol=1e-3, atol=1e-3)


@rows("function", [L.qr, L.svd, L.eigh, L.pinv, L.matrix_exp])
def test_what_cannot_be_recorded_says_so(function: Any) -> None:
    with pytest.raises(RecordError, match="no form in ONNX operators"):
        record(function, {"x": ox.tensor(A)})


@pytest.mark.parametrize("rank", [4, 2], ids=["full", "deficient"])
def test_the_inverse_of_a_hermitian_matrix(rank: int) -> None:
    v = A[..., :rank]
    x = v @ np.diag([3.0, -2, 1, -4][:rank]) @ v.swapaxes(-1, -2)
    assert close(L.pinv(ox.tensor(x), rtol=1e-9, hermitian=True), np.linalg.pinv(x, rcond=1e-9, hermitian=True))


def test_refusals() -> None:
    with pytest.raises(LinAlgError, match="singular"):
        L.inv(ox.zeros(2, 2))
    with pytest.raises(LinAlgError, match="positive-definite"):
        L.cholesky(ox.tensor(-P))
    with pytest.raises(LinAlgError, match="number 1"):
        L.cholesky_ex(ox.tensor(np.stack([P[0], -P[0]])), check_errors=True)
    with pytest.raises(ShapeError, match="square"):
        L.det(ox.tensor(WIDE))
    with pytest.raises(ShapeError, match="B"):
        L.solve(ox.tensor(A), ox.tensor(TALL))
    assert L.inv_ex(ox.tensor(np.stack([P[0], 0 * P[0]]))).info.tolist() == [0, 1]
