"""Orthogonal matrices as functions of any matrix: exponential, Cayley's map, products of reflections."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox import functions as F
from ox import ops, random
from ox.core.operator import as_input, make_tensor
from ox.errors import ShapeError
from ox.nn.base.module import Module
from ox.nn.parameter import Buffer
from ox.tensors.tensor import Tensor

MAPS = ("matrix_exp", "cayley", "householder")


class Orthogonal(Module):
    """A matrix (or a stack of matrices) of `shape` to an orthogonal one; the parametrization behind `orthogonal`."""

    base: Tensor | None

    def __init__(self, shape: tuple[int, ...], kind: str, use_trivialization: bool) -> None:
        super().__init__()
        self.shape, self.kind, self.use_trivialization = tuple(shape), kind, use_trivialization
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        wide = self.shape[-2] < self.shape[-1]
        X = X.mT if wide else X
        rows, columns = X.static_shape[-2:]
        if self.kind == "householder":
            A = lower(X, -1)
            Q = reflections(A, 2.0 / (1.0 + (A * A).sum(-2)))
            # the diagonal holds signs, which are no parameters
            Q = Q * truncate(diagonal(X.detach())).unsqueeze(-2)
        else:
            X = lower(X, 0)
            if rows != columns:
                zeros = X.new_zeros(*X.static_shape[:-1], rows - columns)
                X = F.cat([X, zeros], -1)
            A = X - X.mT
            Q = (exponential(A) if self.kind == "matrix_exp" else cayley(A))[..., :columns]
        if self.use_trivialization and self.base is not None:
            Q = F.matmul(self.base, Q)
        return Q.mT if wide else Q


class InvertibleOrthogonal(Orthogonal):
    """One that finds what an orthogonal matrix is made of: of reflections, or relative to a base. The two other maps
    without a base have no inverse in closed form, so setting the matrix is refused there, as in PyTorch."""

    def right_inverse(self, Q: Tensor) -> Tensor:
        if Q.static_shape != self.shape:
            raise ShapeError(
                "this is not the shape of the orthogonal tensor",
                expected=str(list(self.shape)),
                got=str(list(Q.static_shape)),
            )
        wide = self.shape[-2] < self.shape[-1]
        array = np.asarray(Q.detach().cpu().array, np.float64)
        array = np.swapaxes(array, -1, -2) if wide else array
        rows, columns = array.shape[-2:]
        if not self.use_trivialization:
            packed = packed_reflections(array)
            return like(np.swapaxes(packed, -1, -2) if wide else packed, Q)
        if rows != columns:
            # any further columns will do, as the first ones are what is taken
            shape = (*array.shape[:-1], rows - columns)
            if random.is_torch_compatible():
                more = random.normal(shape, Q.array.dtype, kind="initial_normal").array.astype(np.float64)
            else:
                more = np.random.default_rng(0).standard_normal(shape)
            array = with_positive_diagonal(np.concatenate([array, more], -1))
        elif not np.allclose(array @ np.swapaxes(array, -1, -2), np.eye(rows), atol=1e-5):
            array = with_positive_diagonal(array)
        base = like(array, Q)
        self.base = Buffer(base)
        # -1 on the diagonal: reflections by 0 give minus the identity times it
        return like(np.broadcast_to(-np.eye(self.shape[-2], self.shape[-1]), self.shape), Q)


def like(array: Any, tensor: Tensor) -> Tensor:
    return make_tensor(np.ascontiguousarray(array).astype(tensor.array.dtype)).to(tensor.device)


def lower(X: Tensor, diagonal: int) -> Tensor:
    """The lower triangle, up to a diagonal; zeros elsewhere."""
    return ops.Trilu(X, make_tensor(np.array(diagonal, np.int64)), upper=0)


def eye(like: Tensor) -> Tensor:
    return make_tensor(np.eye(like.static_shape[-1], dtype=like.array.dtype)).to(like.device)


def diagonal(X: Tensor) -> Tensor:
    """[..., rows, columns] to [..., columns], for no fewer rows than columns."""
    mask = np.eye(*X.static_shape[-2:], dtype=X.array.dtype)
    return (X * make_tensor(mask).to(X.device)).sum(-2)


def truncate(x: Tensor) -> Tensor:
    return F.sign(x) * F.floor(F.abs(x))


def exponential(A: Tensor) -> Tensor:
    """The matrix exponential: Taylor's series of A / 2⁸ to the 12th power, squared 8 times. The number of squarings is
    fixed, so that a recording holds for any values; it is right to the last digits of float64 up to norms of 100.

    What is squared is E = exp(A / 2ⁿ) - I, as (I + E)² = I + 2E + E²: E is small, and so is its rounding, which every
    squaring doubles."""
    squarings = 8
    A = A * (1 / 2**squarings)
    term = total = A
    for i in range(2, 13):
        term = F.matmul(term, A) * (1 / i)
        total = total + term
    for _ in range(squarings):
        total = 2 * total + F.matmul(total, total)
    return eye(A) + total


def cayley(A: Tensor) -> Tensor:
    """(I + A/2)(I - A/2)⁻¹ of a skew-symmetric A. I - A²/4 is symmetric and at least 1, so that Newton's iteration for
    its inverse always converges."""
    one = eye(A)
    half = A * 0.5
    M = one - F.matmul(half, half)
    # ‖M‖ is at most its largest row sum
    bound = F.amax(F.abs(M).sum(-1), -1).unsqueeze(-1).unsqueeze(-1)
    X = one / bound
    for _ in range(30):
        X = F.matmul(X, one * 2 - F.matmul(M, X))
    return F.matmul(F.matmul(one + half, one + half), X)


def reflections(A: Tensor, tau: Tensor) -> Tensor:
    """The first columns of H₁·H₂·..., Hᵢ = I - τᵢ·vᵢ·vᵢᵀ, with vᵢ the column i of A and 1 on the diagonal."""
    rows, columns = A.static_shape[-2:]
    identity = np.eye(rows, columns, dtype=A.array.dtype)
    Q: Tensor = as_input(np.ascontiguousarray(np.broadcast_to(identity, A.static_shape))).to(A.device)
    V = A + make_tensor(identity).to(A.device)
    for i in reversed(range(columns)):
        v = V[..., i : i + 1]
        Q = Q - v * F.matmul(v.mT, Q) * tau[..., i : i + 1].unsqueeze(-1)
    return Q


def with_positive_diagonal(array: Any) -> Any:
    """The orthogonal factor of a QR decomposition whose other factor has a positive diagonal."""
    q, r = np.linalg.qr(array)
    return q * np.where(np.diagonal(r, axis1=-2, axis2=-1) < 0, -1.0, 1.0)[..., None, :]


def packed_reflections(array: Any) -> Any:
    """The reflections of a QR decomposition below the diagonal, and on it the signs of the other factor's."""
    array = array.copy()
    rows, columns = array.shape[-2:]
    for i in range(min(columns, rows)):
        x = array[..., i:, i]
        norm = np.sqrt((x * x).sum(-1))
        beta = np.where(x[..., 0] < 0, norm, -norm)
        beta = np.where((x[..., 1:] == 0).all(-1), x[..., 0], beta)
        same = beta == x[..., 0]
        tau = np.where(same, 0.0, (beta - x[..., 0]) / np.where(beta == 0, 1.0, beta))
        v = np.where(same[..., None], 0.0, x / np.where(same, 1.0, x[..., 0] - beta)[..., None])
        v[..., 0] = 1
        rest = array[..., i:, i + 1 :]
        rest -= tau[..., None, None] * v[..., :, None] * (v[..., None, :] @ rest)
        array[..., i + 1 :, i] = v[..., 1:]
        sign = np.sign(beta)
        array[..., i, i] = np.where(tau == 0, -sign, sign)
    return array
