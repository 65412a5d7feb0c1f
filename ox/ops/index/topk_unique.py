"""Order: TopK Unique."""

import numpy as np

from ox.core.constants import zeros
from ox.core.operator import operator
from ox.core.tensor import TensorBase
from ox.core.types import XP, Array, HostInt64, Int64, T
from ox.dtypes import ALL, HALF_TYPES, NUMERIC, bool_, float32, int64, uint8
from ox.errors import ArgumentError
from ox.ops.index.gather import ScatterElements

__all__ = ["TopK", "Unique"]

FEW = 8  # the part of a row below which picking candidates first is faster than sorting the row


@operator("Values Indices", kind="sorting", T=NUMERIC, amp="widest", batching="each")
def TopK(
    xp: XP, X: T, K: HostInt64, *, axis: int = -1, largest: int = 1, sorted: int = 1, outputs: int = 1
) -> tuple[T, Int64]:
    """The K largest (or smallest) values along an axis and their places, in order; of equals the first ones. NaN counts
    as greater than every number. ONNX TopK, `torch.topk`."""
    if not X.ndim:
        raise ValueError("a number has no axis to choose along")
    n, k = X.shape[axis], int(K.reshape(-1)[0])
    if not 0 <= k <= n:
        raise ArgumentError(f"TopK of {k} along axis {axis} of {list(X.shape)}", expected=f"0 to {n}", got=str(k))
    rows = xp.moveaxis(X, axis, -1)
    keys = rows.astype(float32) if X.dtype in HALF_TYPES else rows.view(uint8) if X.dtype == bool_ else rows
    if xp is np and k and k * FEW <= n and not (keys.dtype.kind == "f" and np.isnan(keys).any()):
        places = _among_few(keys, k, largest)
    else:
        places = _ordered(xp, keys, largest)[..., :k]
    values = xp.take_along_axis(rows, places, -1)
    return xp.moveaxis(values, -1, axis), xp.moveaxis(places, -1, axis).astype(int64, copy=False)


def _ordered(xp: XP, keys: Array, largest: int) -> Array:
    """The places of each row in order, equals in the order in which they stand."""
    if not largest:
        return xp.argsort(keys, axis=-1, kind="stable")
    # backwards twice, for descending and yet first come first; -x would overflow at an integer's lowest
    return (keys.shape[-1] - 1 - xp.argsort(keys[..., ::-1], axis=-1, kind="stable"))[..., ::-1]


def _among_few(keys: Array, k: int, largest: int) -> Array:
    """The first k places of `_ordered`: what lies beyond the k-th value, and of its equals as many as are wanted."""
    n = keys.shape[-1]
    border = np.partition(keys, n - k if largest else k - 1, axis=-1)[..., n - k if largest else k - 1, None]
    beyond, equal = (keys > border if largest else keys < border), keys == border
    missing = k - beyond.sum(-1, keepdims=True)
    chosen = beyond | (equal & (np.cumsum(equal, -1) <= missing))
    candidates = chosen.reshape(-1, n).nonzero()[1].reshape(*keys.shape[:-1], k)
    order = _ordered(np, np.take_along_axis(keys, candidates, -1), largest)
    return np.take_along_axis(candidates, order, -1)


@TopK.gradient("X")
def _(g: TensorBase, X_shape: tuple[int, ...], Indices: TensorBase, axis: int) -> TensorBase:
    return ScatterElements(zeros(X_shape, g), Indices, g, axis=axis)  # no place is chosen twice


@operator(
    "Y indices inverse_indices counts", kind="sorting", T=ALL, amp="widest", batching="each", data_dependent_shape=True
)
def Unique(
    xp: XP, X: T, *, axis: int | None = None, sorted: int = 1, outputs: int = 1
) -> tuple[T, Int64, Int64, Int64]:
    """The different values (or, with an axis, the different slices along it); where each stands first, which of them
    every element is, and how often each comes. In ascending order, or as they come first. ONNX Unique,
    `torch.unique`."""
    rows = (
        X.reshape(-1, 1)
        if axis is None
        else xp.moveaxis(X, axis, 0).reshape(X.shape[axis], X.size // max(X.shape[axis], 1))
    )
    if rows.dtype in HALF_TYPES:
        rows = rows.astype(float32)
    first, inverse, counts = _classes(xp, rows)
    if not sorted:
        order = xp.argsort(first, kind="stable")
        rank = xp.empty_like(order)
        rank[order] = xp.arange(len(order))
        first, counts, inverse = first[order], counts[order], rank[inverse]
    y = X.reshape(-1)[first] if axis is None else xp.take(X, first, axis=axis)
    found = (y, first.astype(int64), inverse.astype(int64), counts.astype(int64))
    return found[:outputs] if outputs > 1 else (y,)


def _classes(xp: XP, rows: Array) -> tuple[Array, Array, Array]:
    """For each different row, in ascending order, the first that is like it; for each row its class; class sizes."""
    n, width = rows.shape
    if not n:
        none = xp.zeros(0, int64)
        return none, none, none
    order = xp.argsort(rows[:, 0], kind="stable") if width == 1 else xp.lexsort(rows.T[::-1])
    ordered = rows[order]
    new = xp.concatenate([xp.ones(1, bool), (ordered[1:] != ordered[:-1]).any(axis=1)])
    starts = xp.flatnonzero(new)
    inverse = xp.empty(n, int64)
    inverse[order] = xp.cumsum(new) - 1
    return order[starts], inverse, xp.diff(starts, append=xp.asarray([n]))
