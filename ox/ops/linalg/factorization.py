"""Factorizations without a form in ONNX operators, with their gradients: QR Eigh SVD PseudoInverse MatrixExp."""

from typing import Any

import numpy as np

from ox.core.constants import axes_tensor, constant
from ox.core.operator import OPS
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import XP, Array, T
from ox.errors import ArgumentError, LinAlgError, ShapeError
from ox.ops.elementwise.arithmetic import Add, Div, Mul, Sub
from ox.ops.linalg.matmul import MatMul
from ox.ops.linalg.solve import KINDS, Solve, factorization, identity_like, square, transposed, triangle


def _matrices(name: str, A: Array) -> None:
    if A.ndim < 2:
        raise ShapeError(f"{name} takes matrices", expected="[..., m, n]", got=str(list(A.shape)))


def _sum(*parts: TensorBase | None) -> TensorBase | None:
    total = None
    for part in parts:
        if part is not None:
            total = part if total is None else Add(total, part)
    return total


@factorization("Q R", T=KINDS, amp="float32")
def QR(xp: XP, A: T, *, complete: int = 0) -> tuple[T, T]:
    """Q with orthonormal columns and an upper triangle R, Q R = A: [..., m, k] and [..., k, n], where k is
    min(m, n), or m if `complete`."""
    _matrices("qr", A)
    return tuple(xp.linalg.qr(A, "complete" if complete else "reduced"))


@QR.gradient("A")
def _(gQ: Any, gR: Any, A: TensorBase, Q: TensorBase, R: TensorBase, complete: int) -> TensorBase:
    m, n = A.static_shape[-2:]
    if complete and m > n:
        raise ArgumentError("the gradient of a complete QR is not defined for m > n", hint="mode='reduced'")
    gQ = Mul(Q, constant(0, Q)) if gQ is None else gQ
    gR = Mul(R, constant(0, R)) if gR is None else gR
    rest = None
    if m < n:
        # the columns beyond the square are Q R2
        split = [m, n - m]
        (R1, _), (g1, g2) = (OPS["Split"](x, axes_tensor(split), axis=-1, outputs=2) for x in (R, gR))
        A2 = OPS["Split"](A, axes_tensor(split), axis=-1, outputs=2)[1]
        gQ, rest = Add(gQ, MatMul(A2, transposed(g2))), MatMul(Q, g2)
        R, gR = R1, g1
    M = Sub(MatMul(R, transposed(gR)), MatMul(transposed(gQ), Q))
    mirrored = Add(triangle(M), transposed(triangle(M, -1)))
    made: TensorBase = transposed(Solve(R, transposed(Add(gQ, MatMul(Q, mirrored)))))
    return made if rest is None else OPS["Concat"](made, rest, axis=-1)


@factorization("L V", T=KINDS, amp="float32")
def Eigh(xp: XP, A: T, *, upper: int = 0) -> tuple[T, T]:
    """The eigenvalues [..., n], from the least, and orthonormal eigenvectors, as columns, of symmetric matrices, of
    which the lower (or `upper`) triangle is read."""
    square("eigh", A)
    try:
        return tuple(xp.linalg.eigh(A, "U" if upper else "L"))
    except np.linalg.LinAlgError as error:
        raise LinAlgError(f"eigh found no eigenvalues: {error}") from None


@Eigh.gradient("A")
def _(gL: Any, gV: Any, L: TensorBase, V: TensorBase) -> TensorBase:
    one = identity_like(V)
    inner = None if gL is None else Mul(one, OPS["Unsqueeze"](gL, axes_tensor([-1])))
    if gV is not None:
        # (with a 1 on the diagonal, where the differences are 0)
        apart = Sub(OPS["Unsqueeze"](L, axes_tensor([-2])), OPS["Unsqueeze"](L, axes_tensor([-1])))
        moved = MatMul(transposed(V), gV)
        moved = Mul(Sub(moved, transposed(moved)), constant(0.5, moved))  # vectors turn; they do not grow
        turns = Div(moved, Add(apart, one))
        inner = _sum(inner, turns)
    assert inner is not None
    return MatMul(MatMul(V, inner), transposed(V))


@factorization("U S Vh", T=KINDS, amp="float32")
def SVD(xp: XP, A: T, *, full: int = 0) -> tuple[T, T, T]:
    """A = U diag(S) Vh with orthonormal columns U [..., m, k] and rows Vh [..., k, n] and S [..., k] from the greatest,
    k = min(m, n); if `full`, U [..., m, m] and Vh [..., n, n]."""
    _matrices("svd", A)
    try:
        return tuple(xp.linalg.svd(A, bool(full)))
    except np.linalg.LinAlgError as error:
        raise LinAlgError(f"svd found no singular values: {error}") from None


@SVD.gradient("A")
def _(gU: Any, gS: Any, gVh: Any, A: TensorBase, U: TensorBase, S: TensorBase, Vh: TensorBase, full: int) -> TensorBase:
    m, n = A.static_shape[-2:]
    if full and m != n and (gU is not None or gVh is not None):
        raise ArgumentError(
            "the gradient of a full SVD's vectors is not defined for m != n", hint="full_matrices=False"
        )
    if full and m != n:
        k = axes_tensor([min(m, n)])
        U = OPS["Slice"](U, axes_tensor([0]), k, axes_tensor([-1]))
        Vh = OPS["Slice"](Vh, axes_tensor([0]), k, axes_tensor([-2]))
    column, row = OPS["Unsqueeze"](S, axes_tensor([-1])), OPS["Unsqueeze"](S, axes_tensor([-2]))
    one = identity_like(MatMul(Vh, transposed(Vh)))
    apart = Add(Sub(Mul(row, row), Mul(column, column)), one)
    off = Sub(constant(1, one), one)

    def turns(basis: TensorType, g: TensorBase) -> TensorType:
        inner = MatMul(basis, g)
        return Mul(Div(Sub(inner, transposed(inner)), apart), off)

    V = transposed(Vh)
    gV = None if gVh is None else transposed(gVh)
    inner = _sum(
        None if gU is None else Mul(turns(transposed(U), gU), row),
        None if gV is None else Mul(turns(Vh, gV), column),
        None if gS is None else Mul(one, OPS["Unsqueeze"](gS, axes_tensor([-1]))),
    )
    assert inner is not None
    made = MatMul(MatMul(U, inner), Vh)
    if gU is not None and m > n:  # what leaves the space of U
        outside = Sub(gU, MatMul(U, MatMul(transposed(U), gU)))
        made = Add(made, MatMul(Div(outside, row), Vh))
    if gV is not None and n > m:
        outside = Sub(gV, MatMul(V, MatMul(Vh, gV)))
        made = Add(made, transposed(MatMul(Div(outside, row), transposed(U))))
    return made


@factorization("Y", T=KINDS, amp="float32")
def PseudoInverse(xp: XP, A: T, *, atol: float = 0.0, rtol: float = 0.0, hermitian: int = 0) -> T:
    """Moore and Penrose's inverse [..., n, m] of A [..., m, n]; singular values up to max(atol, rtol times the
    greatest) count as 0."""
    _matrices("pinv", A)
    if not A.size:
        return xp.zeros((*A.shape[:-2], A.shape[-1], A.shape[-2]), A.dtype)
    if hermitian:  # CuPy's svd has no such argument
        w, u = xp.linalg.eigh(A)
        s, vh = xp.abs(w), u.swapaxes(-1, -2) * xp.sign(w)[..., None]
    else:
        u, s, vh = xp.linalg.svd(A, False)
    small = s <= xp.maximum(atol, rtol * s.max(-1, keepdims=True))
    inverse = xp.where(small, 0, 1 / xp.where(small, 1, s)).astype(A.dtype)
    return xp.matmul(vh.swapaxes(-1, -2) * inverse[..., None, :], u.swapaxes(-1, -2))


@PseudoInverse.gradient("A")
def _(g: TensorBase, A: TensorBase, Y: TensorBase) -> TensorBase:
    # for a rank that does not change
    Yt, gt = transposed(Y), transposed(g)
    made = -MatMul(MatMul(Yt, g), Yt)
    left = MatMul(gt, MatMul(Y, Yt))
    right = MatMul(MatMul(Yt, Y), gt)
    left = Sub(left, MatMul(A, MatMul(Y, left)))
    right = Sub(right, MatMul(MatMul(right, Y), A))
    return Add(Add(made, left), right)


PADE = (
    64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
    670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1,
)  # fmt: skip


@factorization("Y", T=KINDS, amp="float32")
def MatrixExp(xp: XP, A: T) -> T:
    """The exponential of each square matrix: a Padé approximant of degree 13, scaled and squared (Higham 2005)."""
    square("matrix_exp", A)
    if not A.size:
        return A.copy()
    norm = float(xp.abs(A).sum(-2).max())
    if not np.isfinite(norm):
        return xp.full_like(A, np.nan)
    squarings = max(0, int(np.ceil(np.log2(norm / 2.1)))) if norm > 2.1 else 0
    x = A.astype(np.float64) / 2.0**squarings
    one = xp.broadcast_to(xp.eye(A.shape[-1]), A.shape)
    x2 = x @ x
    x4 = x2 @ x2
    x6 = x4 @ x2
    b = PADE
    odd = x @ (x6 @ (b[13] * x6 + b[11] * x4 + b[9] * x2) + b[7] * x6 + b[5] * x4 + b[3] * x2 + b[1] * one)
    even = x6 @ (b[12] * x6 + b[10] * x4 + b[8] * x2) + b[6] * x6 + b[4] * x4 + b[2] * x2 + b[0] * one
    y = xp.linalg.solve(even - odd, even + odd)
    for _ in range(squarings):
        y = y @ y
    return y.astype(A.dtype)


@MatrixExp.gradient("A")
def _(g: TensorBase, A: TensorBase) -> TensorBase:
    # the corner of exp([[Aᵀ, g], [0, Aᵀ]])
    n = A.static_shape[-1]
    At = transposed(A)
    none = Mul(At, constant(0, At))
    whole = OPS["Concat"](
        OPS["Concat"](At, g, axis=-1), OPS["Concat"](none, At, axis=-1), axis=-2
    )  # fmt: skip
    made: TensorBase = MatrixExp(whole)
    half = axes_tensor([n])
    top = OPS["Slice"](made, axes_tensor([0]), half, axes_tensor([-2]))
    return OPS["Slice"](top, half, axes_tensor([2 * n]), axes_tensor([-1]))
