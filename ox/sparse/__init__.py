"""Sparse tensors in coordinate form, under the names of `torch.sparse`."""

from ox.sparse.creation import sparse_coo_tensor, sparse_mask, spdiags, to_sparse
from ox.sparse.legacy import DoubleTensor, FloatTensor, HalfTensor, IntTensor, LongTensor
from ox.sparse.products import addmm, dsmm, mm, sampled_addmm, smm, spmm
from ox.sparse.reduce import log_softmax, softmax, sum
from ox.sparse.tensor import SparseTensor

__all__ = [
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "SparseTensor",
    "addmm",
    "dsmm",
    "log_softmax",
    "mm",
    "sampled_addmm",
    "smm",
    "softmax",
    "sparse_coo_tensor",
    "sparse_mask",
    "spdiags",
    "spmm",
    "sum",
    "to_sparse",
]
