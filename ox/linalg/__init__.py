"""Linear algebra, under the names of `torch.linalg`, on matrices [..., m, n] of float32 and float64.

Only real values exist: symmetric matrices instead of Hermitian ones, and no eig and eigvals, whose results are complex.
det, slogdet, solve, inv, cholesky and functions composed of them can be recorded; qr, svd, eigh, pinv and matrix_exp
have no form in ONNX operators and raise an error.
"""

from ox.errors import LinAlgError
from ox.functions.norms import vector_norm
from ox.functions.overloads import with_keywords as _with_keywords
from ox.linalg.factorizations import cond, eigh, eigvalsh, matrix_exp, matrix_norm, matrix_rank, norm, qr, svd, svdvals
from ox.linalg.products import cross, diagonal, matmul, multi_dot, vander, vecdot
from ox.linalg.solvers import (
    cholesky,
    cholesky_ex,
    cholesky_inverse,
    cholesky_solve,
    det,
    inv,
    inv_ex,
    logdet,
    lstsq,
    matrix_power,
    pinv,
    slogdet,
    solve,
    solve_ex,
    solve_triangular,
    tensorinv,
    tensorsolve,
)

__all__ = [
    "LinAlgError",
    "cholesky",
    "cholesky_ex",
    "cholesky_inverse",
    "cholesky_solve",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "inv_ex",
    "logdet",
    "lstsq",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_ex",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vander",
    "vecdot",
    "vector_norm",
]

_with_keywords(globals(), __all__, frozenset(("diagonal", "vander")), plain=frozenset())
