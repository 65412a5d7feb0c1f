"""Tensor's way to sparse tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ox.dtypes import DType

if TYPE_CHECKING:
    from ox.sparse.tensor import SparseTensor


class SparseMethods:
    """Mixed into `ox.Tensor`."""

    is_sparse = False
    layout = "strided"

    def to_sparse(self: Any, sparse_dim: int | None = None) -> SparseTensor:
        """The elements that are not 0, or with `sparse_dim` the slices over the first dimensions that have one."""
        from ox.sparse.creation import to_sparse

        return to_sparse(self, sparse_dim)

    to_sparse_coo = to_sparse

    def sparse_mask(self: Any, mask: SparseTensor) -> SparseTensor:
        """The values at the coordinates of a sparse tensor of the same shape."""
        from ox.sparse.creation import sparse_mask

        return sparse_mask(self, mask)

    def to_dense(self: Any, dtype: DType | None = None) -> Any:
        """Itself; what a sparse tensor becomes."""
        return self if dtype is None else self.to(dtype)
