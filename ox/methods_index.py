"""Tensor's methods that pick, place and order elements."""

from __future__ import annotations

from ox.method import function


class IndexMethods:
    """Mixed into `ox.Tensor`."""

    # order
    topk, sort, argsort, msort, kthvalue = map(function, ("topk", "sort", "argsort", "msort", "kthvalue"))
