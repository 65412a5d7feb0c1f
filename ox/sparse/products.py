"""Matrix products with a sparse matrix on the left."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox import functions as F
from ox.core.operator import make_tensor
from ox.errors import ArgumentError, ShapeError
from ox.sparse.creation import to_sparse
from ox.sparse.tensor import SparseTensor, at
from ox.tensors.tensor import Tensor


def mm(mat1: SparseTensor, mat2: Any, reduce: str = "sum") -> Any:
    """[n, m] sparse times [m, p]: dense [n, p] for a dense matrix (or [n] for a vector), sparse for a sparse one.
    `torch.sparse.mm`. Every entry picks a row of the other matrix, and adds it to a row of the result.

    Raises:
        ShapeError: sizes that do not fit, or a sparse tensor that is no matrix with two sparse dimensions.
    """
    if reduce != "sum":
        raise ArgumentError(f"a sparse product adds, and has no reduce={reduce!r}", expected="'sum'")
    if isinstance(mat1, Tensor):
        return mat1 @ mat2
    shape = mat2.shape
    if mat1.ndim != 2 or mat1.sparse_dim() != 2 or len(shape) not in (1, 2) or mat1.shape[1] != shape[0]:
        raise ShapeError(
            f"sparse {list(mat1.shape)} cannot multiply {list(shape)}",
            expected=f"[{mat1.shape[-1]}, columns]",
            got=str(list(shape)),
        )
    if isinstance(mat2, SparseTensor):
        return to_sparse(mm(mat1, mat2.to_dense()))
    rows, columns = (make_tensor(np.ascontiguousarray(i)).to(mat1.device) for i in mat1._index.numpy())
    values = mat1._values()
    picked = F.index_select(mat2, 0, columns) * (values.unsqueeze(-1) if len(shape) == 2 else values)
    return F.index_add(picked.new_zeros(mat1.shape[0], *shape[1:]), 0, rows, picked)


def smm(input: SparseTensor, mat2: Any) -> SparseTensor:
    """`mm` with a sparse result. `torch.smm`. Depends on values, so it does not record."""
    return to_sparse(mm(input, mat2))


spmm = dsmm = mm  # `torch.spmm`, an older name


def addmm(mat: Any, mat1: SparseTensor, mat2: Any, beta: float = 1.0, alpha: float = 1.0) -> Any:
    """beta·mat + alpha·(mat1 @ mat2). `torch.sparse.addmm`."""
    product = mm(mat1, mat2)
    return mat * beta + product * alpha


def sampled_addmm(
    input: SparseTensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1.0, alpha: float = 1.0
) -> SparseTensor:
    """beta·input + alpha·(mat1 @ mat2), only at the coordinates of `input`. `torch.sparse.sampled_addmm`."""
    product = at(mat1 @ mat2, input)
    return input._with(input._values() * beta + product * alpha)
