"""Equations: det slogdet inv solve solve_triangular cholesky cholesky_solve pinv lstsq and their like."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ox import ops
from ox.amp.policy import by_policy
from ox.dtypes import DType, float32, int32
from ox.errors import ArgumentError, LinAlgError, ShapeError
from ox.functions import reshape, squeeze, tril, triu, unsqueeze, where
from ox.linalg import shapes
from ox.linalg.shapes import matrices, together, turned
from ox.ops import matrix, operator
from ox.ops.factor import PseudoInverse
from ox.ops.mode import MODE
from ox.tensor import Tensor
from ox.where import users_line

SMALL = 6  # up to here the gradient of a determinant is made of its minors, which is right for singular matrices too


def det(A: Any) -> Tensor:
    """The determinants [...] of A [..., n, n]. Above 6 rows the gradient is of matrices that are not singular.
    `torch.linalg.det`, ONNX Det."""
    matrices(A, "det", square=True)
    if A.node is None or A.array.shape[-1] <= SMALL or MODE.get().recording is not None:
        return ops.Det(A)
    sign, log = matrix.LogDet(A)
    return ops.Mul(sign, ops.Exp(log))


def slogdet(A: Any) -> shapes.SlogdetResult:
    """Sign and logarithm of the absolute value of the determinants of A [..., n, n]. `torch.linalg.slogdet`."""
    return shapes.SlogdetResult(*matrix.LogDet(matrices(A, "slogdet", square=True)))


def logdet(A: Any) -> Tensor:
    """The logarithm of the determinants, NaN where one is negative. `torch.logdet`."""
    sign, log = slogdet(A)
    made: Tensor = where(sign < 0, float("nan"), log)
    return made


def solve(A: Any, B: Any, *, left: bool = True) -> Tensor:
    """The X with A X = B, or X A = B if not `left`: A [..., n, n], B [..., n, k], or [..., n] for vectors. Records as
    a function of ONNX operators. `torch.linalg.solve`.

    Raises:
        LinAlgError: a matrix is singular.
        ShapeError: shapes that do not fit.
    """
    matrices(A, "solve", square=True)
    vector = B.array.ndim == 1 or (B.array.ndim + 1 == A.array.ndim and B.array.shape == A.array.shape[:-1])
    if vector:
        if not left:
            raise ArgumentError("solve with left=False takes no vectors", where=users_line(2))
        return squeeze(solve(A, unsqueeze(B, -1)), -1)
    if not left:
        return turned(solve(turned(A), turned(B)))
    if B.array.ndim < 2 or B.array.shape[-2] != A.array.shape[-1]:
        raise ShapeError(
            "solve: the two sides do not fit",
            where=users_line(2),
            expected=f"B [..., {A.array.shape[-1]}, k]",
            got=f"B {list(B.array.shape)}",
        )
    return matrix.Solve(*together(A, B, "solve"))  # type: ignore[no-any-return]


def _identity(A: Any) -> Tensor:
    return ops.Expand(matrix.identity_like(A), ops.Shape(A))


def inv(A: Any) -> Tensor:
    """The inverse of A [..., n, n]; records. `torch.linalg.inv`.

    Raises:
        LinAlgError: a matrix is singular.
    """
    return matrix.Solve(matrices(A, "inv", square=True), _identity(A))  # type: ignore[no-any-return]


def _tested(A: Any) -> DType:
    """The type in which NumPy looks at A: its own, or float32 where an operator will cast it or say what it takes."""
    dtype: DType = A.array.dtype
    return dtype if dtype in matrix.KINDS else float32


def _info(A: Any, test: Any) -> Tensor:
    """int32 [...]: 1 where a matrix does not stand the test."""
    n = A.array.shape[-1]
    flat = np.asarray(A.array, _tested(A)).reshape(-1, n, n)
    found = np.zeros(len(flat), int32)
    for i, one in enumerate(flat):
        try:
            test(one)
        except np.linalg.LinAlgError:
            found[i] = 1
    made: Tensor = operator.as_input(found.reshape(A.array.shape[:-2]))
    return made


def _sound(A: Any, info: Tensor) -> Tensor:
    """Identities in place of the matrices that are not sound."""
    bad = reshape(info, [*info.array.shape, 1, 1]) > 0
    made: Tensor = where(bad, _identity(A), A)
    return made


def _checked(info: Tensor, check_errors: bool, what: str) -> None:
    if check_errors and info.array.any():
        raise LinAlgError(f"a matrix is {what}", where=users_line(3), got=f"number {int(info.array.argmax())}")


def inv_ex(A: Any, *, check_errors: bool = False) -> shapes.InverseResult:
    """`inv`, and int32 [...] that is not 0 where a matrix is singular (its inverse is then of no use).
    `torch.linalg.inv_ex`."""
    info = _info(matrices(A, "inv_ex", square=True), np.linalg.inv)
    _checked(info, check_errors, "singular")
    return shapes.InverseResult(inv(_sound(A, info) if info.array.any() else A), info)


def solve_ex(A: Any, B: Any, *, left: bool = True, check_errors: bool = False) -> shapes.SolveResult:
    """`solve`, and int32 [...] that is not 0 where a matrix is singular. `torch.linalg.solve_ex`."""
    info = _info(matrices(A, "solve_ex", square=True), np.linalg.inv)
    _checked(info, check_errors, "singular")
    return shapes.SolveResult(solve(_sound(A, info) if info.array.any() else A, B, left=left), info)


def solve_triangular(A: Any, B: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """`solve` with one triangle of A, the other one not being read, nor the diagonal if `unitriangular`.
    `torch.linalg.solve_triangular`."""
    matrices(A, "solve_triangular", square=True)
    matrices(B, "solve_triangular")
    if unitriangular:
        A = (triu if upper else tril)(A, 1 if upper else -1) + matrix.identity_like(A)
    else:
        A = (triu if upper else tril)(A)
    if B.array.ndim + 1 == A.array.ndim:
        B = unsqueeze(B, 0)  # a batch that broadcasts, never vectors
    return solve(A, B, left=left)


def cholesky(A: Any, *, upper: bool = False) -> Tensor:
    """L [..., n, n], a lower triangle, with L Lᵀ = A, or its transpose if `upper`; records. `torch.linalg.cholesky`.

    Raises:
        LinAlgError: a matrix is not positive-definite.
    """
    L: Tensor = matrix.Cholesky(matrices(A, "cholesky", square=True))
    return turned(L) if upper else L


def cholesky_ex(A: Any, *, upper: bool = False, check_errors: bool = False) -> shapes.CholeskyResult:
    """`cholesky`, and int32 [...] that is not 0 where a matrix is not positive-definite. `torch.linalg.cholesky_ex`."""
    info = _info(matrices(A, "cholesky_ex", square=True), np.linalg.cholesky)
    _checked(info, check_errors, "not positive-definite")
    return shapes.CholeskyResult(cholesky(_sound(A, info) if info.array.any() else A, upper=upper), info)


def cholesky_solve(B: Any, L: Any, upper: bool = False) -> Tensor:
    """The X with L Lᵀ X = B, or Lᵀ L X = B if `upper`. `torch.cholesky_solve`."""
    matrices(B, "cholesky_solve")
    matrices(L, "cholesky_solve", square=True)
    first = solve_triangular(turned(L) if upper else L, B, upper=False)
    return solve_triangular(L if upper else turned(L), first, upper=True)


def cholesky_inverse(L: Any, upper: bool = False) -> Tensor:
    """The inverse of the matrix whose Cholesky factor is L. `torch.cholesky_inverse`."""
    return cholesky_solve(_identity(matrices(L, "cholesky_inverse", square=True)), L, upper)


def tolerances(A: Any, atol: Any, rtol: Any) -> tuple[float, float]:
    """Below which a singular value counts as 0; by default, relative, the element type's step times the longer side."""
    if atol is None and rtol is None:
        return 0.0, max(A.array.shape[-2:]) * float(np.finfo(_tested(A)).eps)
    return float(atol or 0.0), float(rtol or 0.0)


@by_policy
def pinv(A: Any, rcond: float | None = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Tensor:
    """Moore and Penrose's inverse [..., n, m] of A [..., m, n]; singular values up to max(atol, rtol times the
    greatest) count as 0. The gradient is that for a rank that does not change. `torch.linalg.pinv`."""
    matrices(A, "pinv", square=hermitian)
    least, relative = tolerances(A, atol, rcond if rtol is None else rtol)
    made: Tensor = PseudoInverse(A, atol=least, rtol=relative, hermitian=int(hermitian))
    return made


@by_policy
def lstsq(A: Any, B: Any, rcond: float | None = None, *, driver: str | None = None) -> shapes.LstsqResult:
    """The X [..., n, k] with the least |A X - B|, of those the shortest: A [..., m, n], B [..., m, k]. Also the squared
    residuals [..., k] (empty unless m > n and every rank is full), the ranks [...], and nothing. `torch.linalg.lstsq`;
    by singular values whatever the `driver`."""
    matrices(A, "lstsq")
    matrices(B, "lstsq")
    if A.array.shape[-2] != B.array.shape[-2]:
        raise ShapeError(
            "lstsq: the two sides do not fit",
            where=users_line(2),
            expected=f"B [..., {A.array.shape[-2]}, k]",
            got=f"B {list(B.array.shape)}",
        )
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise ArgumentError(f"lstsq has no driver {driver!r}", where=users_line(2))
    A, B = together(A, B, "lstsq")
    X = ops.MatMul(pinv(A, rcond), B)
    from ox.linalg.factors import matrix_rank

    rank = matrix_rank(A.detach(), rtol=rcond)
    m, n = A.array.shape[-2:]
    empty: Tensor = operator.as_input(np.zeros(0, A.array.dtype))
    residuals = empty
    if m > n and bool((rank.array == n).all()):
        left = ops.MatMul(A, X) - B
        residuals = (left * left).sum(-2)
    return shapes.LstsqResult(X, residuals, rank, empty)


def tensorinv(A: Any, ind: int = 2) -> Tensor:
    """The inverse for `tensordot` over the last `ind` dimensions. `torch.linalg.tensorinv`."""
    front, back = A.array.shape[:ind], A.array.shape[ind:]
    if ind < 1 or prod(front) != prod(back):
        raise ShapeError(
            "tensorinv takes as many elements before as behind", where=users_line(2), got=f"{list(front)}, {list(back)}"
        )
    return reshape(inv(reshape(A, [prod(front), prod(back)])), [*back, *front])


def tensorsolve(A: Any, B: Any, dims: Any = None) -> Tensor:
    """The X with tensordot(A, X, X.ndim) = B. `torch.linalg.tensorsolve`."""
    if dims is not None:
        from ox.functions import permute

        moved = [d % A.array.ndim for d in dims]
        A = permute(A, [*(d for d in range(A.array.ndim) if d not in moved), *moved])
    rest = A.array.shape[B.array.ndim :]
    if prod(rest) != B.array.size or prod(A.array.shape[: B.array.ndim]) != B.array.size:
        raise ShapeError(
            "tensorsolve: the shapes do not fit",
            where=users_line(2),
            got=f"A {list(A.array.shape)}, B {list(B.array.shape)}",
        )
    return reshape(solve(reshape(A, [B.array.size, prod(rest)]), reshape(B, [-1])), list(rest))


def matrix_power(A: Any, n: int) -> Tensor:
    """A multiplied n times with itself; a negative n is of the inverse. `torch.linalg.matrix_power`."""
    matrices(A, "matrix_power", square=True)
    if n < 0:
        return matrix_power(inv(A), -n)
    result = None
    while n:
        if n & 1:
            result = A if result is None else ops.MatMul(result, A)
        n >>= 1
        if n:
            A = ops.MatMul(A, A)
    return _identity(A) if result is None else result
