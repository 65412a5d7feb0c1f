"""Tensor's methods that pick, place and order elements."""

from __future__ import annotations

from ox.tensors.methods.binding import function, in_place


class IndexMethods:
    """Mixed into `ox.Tensor`."""

    # order
    topk, sort, argsort, msort, kthvalue = map(function, ("topk", "sort", "argsort", "msort", "kthvalue"))
    # picking
    gather, index_select, select, masked_select = map(function, ("gather", "index_select", "select", "masked_select"))
    take, take_along_dim, nonzero, argwhere = map(function, ("take", "take_along_dim", "nonzero", "argwhere"))
    # placing
    scatter, scatter_add, scatter_reduce = map(function, ("scatter", "scatter_add", "scatter_reduce"))
    scatter_, scatter_add_, scatter_reduce_ = map(in_place, ("scatter", "scatter_add", "scatter_reduce"))
    index_add, index_copy, index_fill = map(function, ("index_add", "index_copy", "index_fill"))
    index_add_, index_copy_, index_fill_ = map(in_place, ("index_add", "index_copy", "index_fill"))
    index_put, index_reduce, put = map(function, ("index_put", "index_reduce", "put"))
    index_put_, index_reduce_, put_ = map(in_place, ("index_put", "index_reduce", "put"))
    masked_scatter, select_scatter, slice_scatter = map(function, ("masked_scatter", "select_scatter", "slice_scatter"))
    masked_scatter_ = in_place("masked_scatter")
