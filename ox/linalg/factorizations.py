"""Factorizations and what depends on them: qr svd eigh, norms of matrices, rank, condition, exponential."""

from __future__ import annotations

from math import inf
from typing import Any

from ox import ops
from ox.amp.policy import by_policy
from ox.core.promotion import cast, upcast_half
from ox.core.tensor import is_tensor
from ox.dtypes import DType
from ox.errors import ArgumentError, ShapeError
from ox.functions import amax, amin, cat, movedim, narrow
from ox.functions.dimension_arguments import one_dim
from ox.functions.norms import vector_norm
from ox.functions.operand_arguments import in_single
from ox.linalg import shapes
from ox.linalg.shapes import matrices
from ox.linalg.solvers import inv, tolerances
from ox.ops.linalg import factorization
from ox.tensors.tensor import Tensor


def qr(A: Any, mode: str = "reduced") -> shapes.QRResult:
    """Q [..., m, k] with orthonormal columns and an upper triangle R [..., k, n], Q R = A. `torch.linalg.qr`.

    Args:
        mode: "reduced" for k = min(m, n), "complete" for k = m, "r" for R alone (Q is then empty).
    """
    matrices(A, "qr")
    if mode not in ("reduced", "complete", "r"):
        raise ArgumentError(f"qr has no mode {mode!r}", expected="'reduced', 'complete' or 'r'")
    if mode == "r" and A.node is not None:
        raise ArgumentError("the gradient of qr needs Q", hint="mode='reduced'")
    Q, R = factorization.QR(A, complete=int(mode == "complete"))
    return shapes.QRResult(Q.reshape(-1)[:0] if mode == "r" else Q, R)


def svd(A: Any, full_matrices: bool = True, *, driver: str | None = None) -> shapes.SVDResult:
    """U, S and Vh with A = U diag(S) Vh: orthonormal columns and rows, S [..., min(m, n)] from the greatest.
    `torch.linalg.svd`. The gradient of the vectors is not defined where values repeat; through those that only fill
    the space, beyond min(m, n), none passes."""
    m, n = matrices(A, "svd").static_shape[-2:]
    if not full_matrices or A.node is None or m == n:
        return shapes.SVDResult(*factorization.SVD(A, full=int(full_matrices)))
    U, S, Vh = factorization.SVD(A, full=0)
    rest = factorization.SVD(A.detach(), full=1)
    if m > n:
        U = cat([U, narrow(rest[0], -1, n, m - n)], -1)
    else:
        Vh = cat([Vh, narrow(rest[2], -2, m, n - m)], -2)
    return shapes.SVDResult(U, S, Vh)


def svdvals(A: Any, *, driver: str | None = None) -> Tensor:
    """The singular values [..., min(m, n)] from the greatest. `torch.linalg.svdvals`."""
    return factorization.SVD(matrices(A, "svdvals"))[1]


def eigh(input: Any, UPLO: str = "L") -> shapes.EighResult:
    """Eigenvalues [..., n] from the least and orthonormal eigenvectors, as columns, of symmetric A, of which the lower
    ("L") or upper ("U") triangle is read. `torch.linalg.eigh`."""
    if UPLO.upper() not in ("L", "U"):
        raise ArgumentError(f"eigh has no triangle {UPLO!r}", expected="'L' or 'U'")
    return shapes.EighResult(*factorization.Eigh(matrices(input, "eigh", square=True), upper=int(UPLO.upper() == "U")))


def eigvalsh(input: Any, UPLO: str = "L") -> Tensor:
    """The eigenvalues [..., n] of symmetric A from the least. `torch.linalg.eigvalsh`."""
    return eigh(input, UPLO).eigenvalues


def matrix_exp(input: Any) -> Tensor:
    """The exponential of each square matrix. `torch.linalg.matrix_exp`."""
    return in_single(factorization.MatrixExp, matrices(input, "matrix_exp", square=True))


@by_policy
def matrix_rank(input: Any, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Tensor:
    """How many singular values, int64 [...], are above max(atol, rtol times the greatest).
    `torch.linalg.matrix_rank`."""
    matrices(input, "matrix_rank", square=hermitian)
    least, relative = tolerances(input, tol if atol is None else atol, rtol)
    values = svdvals(input.detach())
    if not values.array.size:
        return ops.ReduceSum(ops.Cast(values, to=7), _ints(-1), keepdims=0)
    bound = amax(values, -1, True) * _column(relative)
    if is_tensor(least) or least:
        bound = ops.Max(bound, cast(bound * 0 + _column(least), bound.array.dtype))
    return ops.ReduceSum(ops.Cast(values > bound, to=7), _ints(-1), keepdims=0)


def _column(bound: Any) -> Any:
    """A bound for each matrix, beside its values."""
    return bound.unsqueeze(-1) if is_tensor(bound) else bound


def _ints(*values: int) -> Tensor:
    from ox.core.constants import axes_tensor

    return axes_tensor(values)


@upcast_half
def matrix_norm(
    input: Any, ord: float | str = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """A norm of matrices over two dimensions: "fro", "nuc", inf, -inf, 1, -1, 2 or -2. `torch.linalg.matrix_norm`."""
    input = input if dtype is None else cast(input, dtype)
    matrices(input, "matrix_norm")
    rank = input.array.ndim
    dims = [one_dim(d, rank) for d in dim]
    if len(dims) != 2 or dims[0] == dims[1]:
        raise ArgumentError("matrix_norm works over two dimensions", got=str(dim))
    if ord == "fro":
        return vector_norm(input, 2, dims, keepdim)
    if ord in (1, 2, inf) and not input.array.size:  # of nothing 0, as of other norms
        return vector_norm(input, 2, dims, keepdim)
    if ord in (1, -1, inf, -inf):
        first, second = dims if abs(ord) == 1 else dims[::-1]
        sums = ops.ReduceL1(input, _ints(first), keepdims=1)
        made = (amax if ord > 0 else amin)(sums, second, True)
    elif ord in ("nuc", 2, -2):
        values = svdvals(movedim(input, dims, (-2, -1)))
        made = values.sum(-1) if ord == "nuc" else (amax if ord == 2 else amin)(values, -1)
        for d in sorted(dims):
            made = made.unsqueeze(d)
    else:
        raise ArgumentError(f"matrix_norm has no order {ord!r}", expected="'fro', 'nuc', inf, -inf, 1, -1, 2 or -2")
    return made if keepdim else ops.Squeeze(made, _ints(*dims))


@upcast_half
def norm(input: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """`matrix_norm` for a word, for two dimensions or for a matrix with an order; else `vector_norm`; of all elements
    without `ord` and `dim`. `torch.linalg.norm`."""
    if ord is None:
        return vector_norm(input, 2, dim, keepdim, dtype=dtype)
    dims = None if dim is None else [dim] if isinstance(dim, int) else list(dim)
    if isinstance(ord, str) or (dims is None and input.array.ndim == 2) or (dims is not None and len(dims) == 2):
        if dims is None and input.array.ndim != 2:
            raise ShapeError("norm of this order takes a matrix, or two dimensions")
        return matrix_norm(input, ord, dims or (-2, -1), keepdim, dtype=dtype)
    if dims is None and input.array.ndim != 1:
        raise ShapeError("norm with an order takes a vector or a matrix, or dimensions")
    return vector_norm(input, ord, dims, keepdim, dtype=dtype)


def cond(input: Any, p: Any = None) -> Tensor:
    """How much A amplifies errors: the norm of order p times that of the inverse; by default the greatest singular
    value by the least. `torch.linalg.cond`."""
    matrices(input, "cond", square=p not in (None, 2, -2))
    if p in (None, 2, -2):
        values = svdvals(input)
        first, last = values[..., 0], values[..., -1]
        return ops.Div(last, first) if p == -2 else ops.Div(first, last)
    return ops.Mul(matrix_norm(input, p), matrix_norm(inv(input), p))
