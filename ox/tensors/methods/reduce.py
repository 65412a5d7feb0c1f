"""Tensor's methods over dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ox import functions as F
from ox.dtypes import DType
from ox.functions.keyword_arguments import method
from ox.tensors.methods.binding import function, in_place

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor


class ReduceMethods:
    """Mixed into `ox.Tensor`."""

    sum, mean, prod, nansum, nanmean = map(function, ("sum", "mean", "prod", "nansum", "nanmean"))
    amax, amin, max, min, aminmax = map(function, ("amax", "amin", "max", "min", "aminmax"))
    argmax, argmin, count_nonzero = map(function, ("argmax", "argmin", "count_nonzero"))
    var, std, dist, renorm = map(function, ("var", "std", "dist", "renorm"))
    median, nanmedian, mode = map(function, ("median", "nanmedian", "mode"))
    quantile, nanquantile = map(function, ("quantile", "nanquantile"))
    softmax, log_softmax, logsumexp = map(function, ("softmax", "log_softmax", "logsumexp"))
    all, any, equal, allclose = map(function, ("all", "any", "equal", "allclose"))
    cumsum, cumprod, cummax, cummin = map(function, ("cumsum", "cumprod", "cummax", "cummin"))
    logcumsumexp = function("logcumsumexp")
    cumsum_, cumprod_, renorm_ = map(in_place, ("cumsum", "cumprod", "renorm"))

    @method
    def norm(
        self: Any, p: float | str | None = "fro", dim: Any = None, keepdim: bool = False, dtype: DType | None = None
    ) -> Tensor:
        """`ox.norm`."""
        return F.norm(self, p, dim, keepdim, dtype=dtype)
