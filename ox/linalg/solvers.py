"""Equations: det slogdet inv solve solve_triangular cholesky cholesky_solve pinv lstsq and their like."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ox import ops
from ox.amp.policy import by_policy
from ox.core import operator
from ox.core.constants import on_device_of
from ox.core.mode import MODE
from ox.core.tensor import is_tensor
from ox.devices import cpu
from ox.dtypes import DType, float32, int32
from ox.errors import ArgumentError, LinAlgError, ShapeError
from ox.functions import ones_like, reshape, squeeze, tril, triu, unsqueeze, where
from ox.functions.keyword_arguments import keywords
from ox.functions.zero_gradients import with_zero_gradient
from ox.linalg import shapes
from ox.linalg.shapes import broadcast_batches, matrices, transposed
from ox.ops.linalg import solve as solve_operators
from ox.ops.linalg.factorization import PseudoInverse
from ox.tensors.tensor import Tensor

SMALL = 6  # up to here the gradient of a determinant is made of its minors, which is right for singular matrices too


def det(A: Any) -> Tensor:
    """The determinants [...] of A [..., n, n]. Above 6 rows the gradient is of matrices that are not singular.
    `torch.linalg.det`, ONNX Det."""
    matrices(A, "det", square=True)
    if not A.array.size and A.node is not None:  # 1 for no rows
        return ones_like(A.sum((-2, -1))) + A.sum((-2, -1)) if not A.static_shape[-1] else ops.Det(A)
    if A.node is None or A.static_shape[-1] <= SMALL or MODE.get().recording is not None:
        return ops.Det(A)
    sign, log = solve_operators.LogDet(A)
    return ops.Mul(sign, ops.Exp(log))


def slogdet(A: Any) -> shapes.SlogdetResult:
    """Sign and logarithm of the absolute value of the determinants of A [..., n, n]. `torch.linalg.slogdet`."""
    return shapes.SlogdetResult(*solve_operators.LogDet(matrices(A, "slogdet", square=True)))


def logdet(input: Any) -> Tensor:
    """The logarithm of the determinants, NaN where one is negative. `torch.logdet`."""
    sign, log = slogdet(input)
    return where(sign < 0, float("nan"), log)


def solve(A: Any, B: Any, *, left: bool = True) -> Tensor:
    """The X with A X = B, or X A = B if not `left`: A [..., n, n], B [..., n, k], or [..., n] for vectors. Records as
    a function of ONNX operators. `torch.linalg.solve`.

    Raises:
        LinAlgError: a matrix is singular.
        ShapeError: shapes that do not fit.
    """
    matrices(A, "solve", square=True)
    vector = B.array.ndim == 1 or (B.array.ndim + 1 == A.array.ndim and B.static_shape == A.static_shape[:-1])
    if vector:
        if not left:
            raise ArgumentError("solve with left=False takes no vectors")
        return squeeze(solve(A, unsqueeze(B, -1)), -1)
    if not left:
        return transposed(solve(transposed(A), transposed(B)))
    if B.array.ndim < 2 or B.static_shape[-2] != A.static_shape[-1]:
        raise ShapeError(
            "solve: the two sides do not fit",
            expected=f"B [..., {A.static_shape[-1]}, k]",
            got=f"B {list(B.static_shape)}",
        )
    return solve_operators.Solve(*broadcast_batches(A, B, "solve"))


def _identity(A: Any) -> Tensor:
    return on_device_of(ops.Expand(solve_operators.identity_like(A), ops.Shape(A)), A)


def inv(A: Any) -> Tensor:
    """The inverse of A [..., n, n]; records. `torch.linalg.inv`.

    Raises:
        LinAlgError: a matrix is singular.
    """
    return solve_operators.Solve(matrices(A, "inv", square=True), _identity(A))


def _tested(A: Any) -> DType:
    """The type in which NumPy looks at A: its own, or float32 where an operator will cast it or say what it takes."""
    dtype: DType = A.array.dtype
    return dtype if dtype in solve_operators.KINDS else float32


def _info(A: Any, test: Any) -> Tensor:
    """int32 [...] on the CPU: 1 where a matrix does not stand the test."""
    n = A.static_shape[-1]
    flat = np.asarray(cpu(A.array), _tested(A)).reshape(prod(A.static_shape[:-2]), n, n)
    found = np.zeros(len(flat), int32)
    for i, one in enumerate(flat):
        try:
            test(one)
        except np.linalg.LinAlgError:
            found[i] = 1
    return operator.as_input(found.reshape(A.static_shape[:-2]))


def _sound(A: Any, info: Tensor) -> Tensor:
    """Identities in place of the matrices that are not sound."""
    bad = reshape(info.to(A.device), [*info.static_shape, 1, 1]) > 0
    return where(bad, _identity(A), A)


def _checked(info: Tensor, check_errors: bool, what: str) -> None:
    if check_errors and info.array.any():
        raise LinAlgError(f"a matrix is {what}", got=f"number {int(info.array.argmax())}")


def inv_ex(A: Any, *, check_errors: bool = False) -> shapes.InverseResult:
    """`inv`, and int32 [...] that is not 0 where a matrix is singular (its inverse is then of no use).
    `torch.linalg.inv_ex`."""
    info = _info(matrices(A, "inv_ex", square=True), np.linalg.inv)
    _checked(info, check_errors, "singular")
    return shapes.InverseResult(inv(_sound(A, info) if info.array.any() else A), info.to(A.device))


def solve_ex(A: Any, B: Any, *, left: bool = True, check_errors: bool = False) -> shapes.SolveResult:
    """`solve`, and int32 [...] that is not 0 where a matrix is singular. `torch.linalg.solve_ex`."""
    info = _info(matrices(A, "solve_ex", square=True), np.linalg.inv)
    _checked(info, check_errors, "singular")
    return shapes.SolveResult(solve(_sound(A, info) if info.array.any() else A, B, left=left), info.to(A.device))


def solve_triangular(input: Any, B: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """`solve` with one triangle of A, the other one not being read, nor the diagonal if `unitriangular`.
    `torch.linalg.solve_triangular`."""
    matrices(input, "solve_triangular", square=True)
    matrices(B, "solve_triangular")
    if unitriangular:
        input = (triu if upper else tril)(input, 1 if upper else -1) + solve_operators.identity_like(input)
    else:
        input = (triu if upper else tril)(input)
    if B.array.ndim + 1 == input.array.ndim:
        B = unsqueeze(B, 0)  # a batch that broadcasts, never vectors
    return solve(input, B, left=left)


def cholesky(input: Any, upper: bool = False) -> Tensor:
    """L [..., n, n], a lower triangle, with L Lᵀ = A, or its transpose if `upper`; records. `torch.linalg.cholesky`.

    Raises:
        LinAlgError: a matrix is not positive-definite.
    """
    L: Tensor = solve_operators.Cholesky(matrices(input, "cholesky", square=True))
    return transposed(L) if upper else L


def cholesky_ex(input: Any, *, upper: bool = False, check_errors: bool = False) -> shapes.CholeskyResult:
    """`cholesky`, and int32 [...] that is not 0 where a matrix is not positive-definite. `torch.linalg.cholesky_ex`."""
    info = _info(matrices(input, "cholesky_ex", square=True), np.linalg.cholesky)
    _checked(info, check_errors, "not positive-definite")
    sound = _sound(input, info) if info.array.any() else input
    return shapes.CholeskyResult(cholesky(sound, upper=upper), info.to(input.device))


def cholesky_solve(input: Any, input2: Any, upper: bool = False) -> Tensor:
    """The X with L Lᵀ X = B, or Lᵀ L X = B if `upper`. `torch.cholesky_solve`."""
    matrices(input, "cholesky_solve")
    matrices(input2, "cholesky_solve", square=True)
    first = solve_triangular(transposed(input2) if upper else input2, input, upper=False)
    return solve_triangular(input2 if upper else transposed(input2), first, upper=True)


def cholesky_inverse(input: Any, upper: bool = False) -> Tensor:
    """The inverse of the matrix whose Cholesky factor is L. `torch.cholesky_inverse`."""
    return cholesky_solve(_identity(matrices(input, "cholesky_inverse", square=True)), input, upper)


def tolerances(A: Any, atol: Any, rtol: Any) -> tuple[Any, Any]:
    """Below which a singular value counts as 0; by default, relative, the element type's step times the longer side."""
    if atol is None and rtol is None:
        return 0.0, max(A.static_shape[-2:]) * float(np.finfo(_tested(A)).eps)
    return tuple(t if is_tensor(t) else float(t or 0.0) for t in (atol, rtol))  # type: ignore[return-value]


@by_policy
def pinv(
    input: Any, rcond: float | None = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None
) -> Tensor:
    """Moore and Penrose's inverse [..., n, m] of `input` [..., m, n]; singular values up to max(atol, rtol times the
    greatest) count as 0. The gradient is that for a rank that does not change. `torch.linalg.pinv`."""
    matrices(input, "pinv", square=hermitian)
    least, relative = tolerances(input, atol, rcond if rtol is None else rtol)
    return PseudoInverse(input, atol=least, rtol=relative, hermitian=int(hermitian))


@keywords
def pinverse(input: Any, rcond: float = 1e-15) -> Tensor:
    """`pinv` with the least singular value that PyTorch's older function has. `torch.pinverse`."""
    return pinv(input, rcond)


@by_policy
def lstsq(input: Any, b: Any, rcond: float | None = None, *, driver: str | None = None) -> shapes.LstsqResult:
    """The X [..., n, k] with the least |`input` X - `b`|, of those the shortest: `input` [..., m, n], `b` [..., m, k].
    `torch.linalg.lstsq`; by singular values for every `driver`, which selects the other results: the squared residuals
    [..., k] where m > n and every rank is full (not with "gelsy", the default), the ranks [...] (not with "gels"), the
    singular values ("gelsd", "gelss"); what is not given is empty."""
    matrices(input, "lstsq")
    matrices(b, "lstsq")
    if input.static_shape[-2] != b.static_shape[-2]:
        raise ShapeError(
            "lstsq: the two sides do not fit",
            expected=f"B [..., {input.static_shape[-2]}, k]",
            got=f"B {list(b.static_shape)}",
        )
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise ArgumentError(f"lstsq has no driver {driver!r}")
    input, b = broadcast_batches(input, b, "lstsq")
    X = ops.MatMul(pinv(input, rcond), b)
    from ox.linalg.factorizations import matrix_rank, svdvals

    rank = matrix_rank(input.detach(), rtol=rcond)
    m, n = input.static_shape[-2:]
    empty: Tensor = on_device_of(operator.as_input(np.zeros(0, input.array.dtype)), input)
    residuals = with_zero_gradient(empty, input, b)
    if m > n and driver not in (None, "gelsy") and bool((rank.array == n).all()):
        left = ops.MatMul(input, X) - b
        residuals = (left * left).sum(-2)
    if driver == "gels":  # which takes every rank to be full, and looks for none
        rank = operator.as_input(np.zeros(0, np.int64))
    values = svdvals(input.detach()) if driver in ("gelsd", "gelss") else empty
    return shapes.LstsqResult(X, residuals, rank, values)


def tensorinv(input: Any, ind: int = 2) -> Tensor:
    """The inverse for `tensordot` over the last `ind` dimensions. `torch.linalg.tensorinv`."""
    front, back = input.static_shape[:ind], input.static_shape[ind:]
    if ind < 1 or prod(front) != prod(back):
        raise ShapeError("tensorinv takes as many elements before as behind", got=f"{list(front)}, {list(back)}")
    return reshape(inv(reshape(input, [prod(front), prod(back)])), [*back, *front])


def tensorsolve(input: Any, other: Any, dims: Any = None) -> Tensor:
    """The X with tensordot(A, X, X.ndim) = B. `torch.linalg.tensorsolve`."""
    if dims is not None:
        from ox.functions import permute

        moved = [d % input.array.ndim for d in dims]
        input = permute(input, [*(d for d in range(input.array.ndim) if d not in moved), *moved])
    rest = input.static_shape[other.array.ndim :]
    if prod(rest) != other.array.size or prod(input.static_shape[: other.array.ndim]) != other.array.size:
        raise ShapeError(
            "tensorsolve: the shapes do not fit", got=f"A {list(input.static_shape)}, B {list(other.static_shape)}"
        )
    return reshape(solve(reshape(input, [other.array.size, prod(rest)]), reshape(other, [-1])), list(rest))


def matrix_power(input: Any, n: int) -> Tensor:
    """A multiplied n times with itself; a negative n is of the inverse. `torch.linalg.matrix_power`."""
    matrices(input, "matrix_power", square=True)
    if n < 0:
        return matrix_power(inv(input), -n)
    result = None
    while n:
        if n & 1:
            result = input if result is None else ops.MatMul(result, input)
        n >>= 1
        if n:
            input = ops.MatMul(input, input)
    return with_zero_gradient(_identity(input), input) if result is None else result
