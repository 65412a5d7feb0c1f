"""Sparse tensors in coordinate form, under the names of `torch.sparse`."""

from ox.sparse.make import sparse_coo_tensor, sparse_mask, spdiags, to_sparse
from ox.sparse.products import addmm, mm, sampled_addmm
from ox.sparse.reduce import log_softmax, softmax, sum
from ox.sparse.tensor import SparseTensor

__all__ = [
    "SparseTensor",
    "addmm",
    "log_softmax",
    "mm",
    "sampled_addmm",
    "softmax",
    "sparse_coo_tensor",
    "sparse_mask",
    "spdiags",
    "sum",
    "to_sparse",
]
