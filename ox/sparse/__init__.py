"""Sparse tensors in coordinate form, under the names of `torch.sparse`."""

from ox.sparse.make import sparse_coo_tensor, sparse_mask, spdiags, to_sparse
from ox.sparse.products import addmm, dsmm, mm, sampled_addmm, spmm
from ox.sparse.reduce import log_softmax, softmax, sum
from ox.sparse.tensor import SparseTensor

FloatTensor = sparse_coo_tensor  # as older scripts say

__all__ = [
    "SparseTensor",
    "addmm",
    "dsmm",
    "log_softmax",
    "mm",
    "sampled_addmm",
    "softmax",
    "sparse_coo_tensor",
    "sparse_mask",
    "spdiags",
    "spmm",
    "sum",
    "to_sparse",
]
