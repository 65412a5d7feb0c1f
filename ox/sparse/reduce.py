"""Sums and softmax over sparse tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox import functions as F
from ox.core.operator import make_tensor
from ox.dtypes import DType
from ox.errors import ArgumentError
from ox.functions.dimension_arguments import one_dim
from ox.sparse.tensor import SparseTensor
from ox.tensors.tensor import Tensor


def sum(input: SparseTensor, dim: Any = None, dtype: DType | None = None) -> Any:
    """The sum over all dimensions (a tensor) or some (a sparse one while sparse dimensions are left, else dense).
    `torch.sparse.sum`."""
    if dtype is not None:
        input = input.to(dtype)
    if dim is None:
        return input._values().sum()
    dims = sorted({one_dim(d, input.ndim) for d in ([dim] if isinstance(dim, int) else dim)})
    split = input.sparse_dim()
    dense = tuple(d - split + 1 for d in dims if d >= split)
    values = input._values().sum(dense) if dense else input._values()
    kept = [d for d in range(split) if d not in dims]
    if not kept:
        return values.sum(0)
    shape = [size for d, size in enumerate(input.shape) if d not in dims]
    if len(kept) == split:
        return SparseTensor(input._indices(), values, shape, input.is_coalesced())
    index = make_tensor(np.ascontiguousarray(input._indices().numpy()[kept]))
    return SparseTensor(index, values, shape).coalesce()


def softmax(input: SparseTensor, dim: int, *, dtype: DType | None = None) -> SparseTensor:
    """Softmax over the entries that are there; what is not counts as minus infinity. `torch.sparse.softmax`."""
    made, shifted, group, count = _shifted(input, dim, dtype)
    if group is None:
        return made._with(F.softmax(made._values(), count))
    powers = F.exp(shifted)
    return made._with(powers / F.index_select(_totals(powers, group, count), 0, group))


def log_softmax(input: SparseTensor, dim: int, *, dtype: DType | None = None) -> SparseTensor:
    """The logarithm of `softmax`. `torch.sparse.log_softmax`."""
    made, shifted, group, count = _shifted(input, dim, dtype)
    if group is None:
        return made._with(F.log_softmax(made._values(), count))
    totals = F.log(_totals(F.exp(shifted), group, count))
    return made._with(shifted - F.index_select(totals, 0, group))


def _totals(powers: Tensor, group: Tensor, count: int) -> Tensor:
    return F.index_add(powers.new_zeros(count, *powers.static_shape[1:]), 0, group, powers)


def _shifted(input: SparseTensor, dim: int, dtype: DType | None) -> tuple[SparseTensor, Any, Any, int]:
    """The values less the largest of their group, the group of each entry and how many there are; for a dense
    dimension no groups, and which dimension of the values it is."""
    made = (input if dtype is None else input.to(dtype)).coalesce()
    if not made.is_floating_point():
        raise ArgumentError("softmax takes a floating type", got=str(made.dtype), hint="dtype=ox.float32")
    dim = one_dim(dim, made.ndim)
    if dim >= made.sparse_dim():
        return made, None, None, dim - made.sparse_dim() + 1
    others = np.delete(made._indices().numpy(), dim, 0)
    _, inverse = (
        np.unique(others, axis=1, return_inverse=True) if len(others) else (None, np.zeros(made._nnz(), np.int64))
    )
    inverse = np.ascontiguousarray(inverse).reshape(-1)
    count = int(inverse.max()) + 1 if inverse.size else 0
    values = made._values()
    largest = np.full((count, *values.static_shape[1:]), -np.inf, values.array.dtype)
    np.maximum.at(largest, inverse, np.asarray(values.detach().cpu().array))
    group = make_tensor(inverse).to(values.device)
    return made, values - make_tensor(largest[inverse]).to(values.device), group, count
