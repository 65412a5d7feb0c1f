"""Pad, by positive and negative amounts, in four modes."""

from typing import Any

import numpy as np

from ox.core.constants import axes_tensor, on_device_of, positions
from ox.core.operator import OPS, operator
from ox.core.symbolic import Dim, size_tensor, sizes_of
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import XP, Array, HostInt64, HostTind, T
from ox.dtypes import ALL, int32, int64
from ox.errors import ArgumentError

__all__ = ["Pad"]


@operator(
    "output", kind="padding", sized_by="pads", view=True, T=ALL, Tind=(int32, int64), amp="widest", batching="own"
)
def Pad(
    xp: XP, data: T, pads: HostInt64, constant_value: T = None, axes: HostTind = None, *, mode: str = "constant"
) -> T:
    """Longer or, where pads are negative, shorter at the ends of axes: `pads` holds all begins, then all ends. The new
    places hold a constant (by default 0), or what `edge`, `reflect` or `wrap` puts there. ONNX Pad."""
    amounts = _amounts(data.ndim, pads, axes)
    if mode == "constant":
        return _constant(xp, data, amounts, constant_value)
    if mode not in ("edge", "reflect", "wrap"):
        raise ArgumentError(f"Pad has no mode {mode!r}", expected="constant, reflect, edge or wrap")
    for axis, (begin, end) in enumerate(amounts):
        if begin or end:
            data = xp.take(data, xp.asarray(_sources(data.shape[axis], begin, end, mode)), axis=axis)
    return data


def _amounts(rank: int, pads: Any, axes: Any) -> list[tuple[int, int]]:
    """(begin, end) for every axis."""
    chosen = range(rank) if axes is None else axes.ravel().tolist()
    flat = pads.ravel().tolist()
    if len(flat) != 2 * len(chosen):
        raise ValueError(f"{len(flat)} pads for {len(chosen)} axes, which need {2 * len(chosen)}")
    amounts = [(0, 0)] * rank
    for i, axis in enumerate(chosen):
        amounts[axis] = (flat[i], flat[i + len(chosen)])
    return amounts


def _constant(xp: XP, data: Array, amounts: list[tuple[int, int]], value: Any) -> Array:
    target = [n + b + e for n, (b, e) in zip(data.shape, amounts, strict=True)]
    if min(target, default=0) < 0:
        raise ValueError(f"the sizes {target} would be negative")
    inside = [slice(max(0, -b), max(0, n + min(0, e))) for n, (b, e) in zip(data.shape, amounts, strict=True)]
    kept = data[tuple(inside)]
    if list(kept.shape) == target:
        return kept
    if value is None or (xp is np and value == 0):  # on a GPU to look at it would be to wait
        out = xp.zeros(target, data.dtype)
    else:
        out = xp.full(target, value.reshape(()), data.dtype)
    if kept.size:
        out[tuple([slice(max(0, b), max(0, b) + n) for n, (b, _) in zip(kept.shape, amounts, strict=True)])] = kept
    return out


def _sources(n: int, begin: int, end: int, mode: str) -> Any:
    """For each place along the padded axis, which place of the axis it copies."""
    i = np.arange(-begin, n + end)
    if mode == "edge":
        return i.clip(0, n - 1)
    if mode == "wrap":
        return i % n
    period = max(2 * (n - 1), 1)
    i %= period
    return np.where(i < n, i, period - i)


@Pad.gradient("data", "constant_value")
def _(
    g: TensorBase,
    data_shape: tuple[int, ...],
    pads: TensorBase,
    axes: TensorBase | None,
    constant_value_shape: tuple[int, ...] | None,
    mode: str,
    needs: tuple[bool, bool],
) -> tuple[TensorBase | None, TensorBase | None]:
    if mode == "constant":
        # Pad is its own transpose: what was added is cut off, what was cut off comes back as zeros
        if axes is None:
            inner = Pad(g, OPS["Neg"](pads))
        else:
            flat, count = sizes_of(pads), axes.array.size
            inner = pad_axes(g, {int(a): (-flat[i], -flat[i + count]) for i, a in enumerate(axes.array.ravel())})
        if not needs[1]:
            return inner, None
        rest = OPS["Sub"](OPS["ReduceSum"](g, keepdims=0), OPS["ReduceSum"](inner, keepdims=0))
        return inner, OPS["Reshape"](rest, axes_tensor(constant_value_shape or ()))
    from ox.ops.index.gather import add_along

    chosen = list(range(len(data_shape))) if axes is None else [int(a) % len(data_shape) for a in axes.array.ravel()]
    for i, axis in enumerate(chosen):
        if pads._recorded is None and not pads.array[i :: len(chosen)].any():
            continue
        own = OPS["Gather"](pads, axes_tensor([i, i + len(chosen)]))
        sources = on_device_of(Pad(positions(data_shape[axis]), own, mode=mode), g)
        g = add_along(g, sources, axis, data_shape[axis])
    return g, None


def pad_axes(x: TensorType, amounts: dict[int, tuple[int, int]]) -> TensorType:
    """Zeros before and behind (or, where negative, a cut) along some axes, by amounts that may be `ox.Dim`.

    Written without Pad's `axes`: ONNX Runtime 1.31 moves a Transpose through a Pad as if computed pads spoke of all
    axes, and then fails.
    """
    begins, ends = [0] * x.ndim, [0] * x.ndim
    for axis, (begin, end) in amounts.items():
        begins[axis], ends[axis] = begin, end
    if not any(isinstance(a, Dim) or a for a in (*begins, *ends)):
        return x
    return Pad(x, size_tensor([*begins, *ends]))
