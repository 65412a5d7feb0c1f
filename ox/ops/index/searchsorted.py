"""Search in sorted rows: SearchSorted, a function of the domain ``ox``."""

from typing import Any

from ox.core.constants import axes_tensor
from ox.core.function import function
from ox.core.operator import OPS
from ox.core.types import XP, Int64, T
from ox.dtypes import NUMERIC, int64, onnx_type
from ox.ops.elementwise.comparison import Less, LessOrEqual

__all__ = ["SearchSorted"]


@function("places", kind="index", T=NUMERIC, amp="widest", batching="each")
def SearchSorted(sequence: T, values: T, *, right: int = 0) -> Int64:
    """For each value the place in the sorted row at which it would keep the order: before its equals, or with `right`
    behind them.

    Args:
        sequence: [rows, n], each row in ascending order.
        values: [rows, m], or [1, m] for the same values in every row.

    Returns:
        int64 [rows, m], from 0 to n: how many of the row are smaller (or not larger).
    """
    row = OPS["Unsqueeze"](sequence, axes_tensor([-2]))
    one = OPS["Unsqueeze"](values, axes_tensor([-1]))
    before = (LessOrEqual if right else Less)(row, one)
    return OPS["ReduceSum"](OPS["Cast"](before, to=onnx_type(int64)), axes_tensor([-1]), keepdims=0)


@SearchSorted.fast
def _(xp: XP, sequence: Any, values: Any, *, right: int = 0) -> Any:
    side = "right" if right else "left"
    if len(sequence) == 1:
        return xp.searchsorted(sequence[0], values[0], side=side).astype(int64, copy=False)[None]
    found = xp.empty((len(sequence), values.shape[1]), int64)
    for i, row in enumerate(sequence):
        found[i] = xp.searchsorted(row, values[min(i, len(values) - 1)], side=side)
    return found
