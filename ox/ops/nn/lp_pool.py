"""Pooling by a p-norm: LpPool."""

from collections.abc import Callable, Sequence
from typing import Any

from ox.core.constants import constant
from ox.core.operator import OPS, operator
from ox.core.tensor import TensorBase
from ox.core.types import XP, Array, T
from ox.core.upcast import in_float32
from ox.dtypes import FLOATS, onnx_type
from ox.errors import ArgumentError
from ox.ops.nn.pool import ceil_padding, spatial, spread
from ox.ops.nn.window import Ints, Window, padded

__all__ = ["LpPool"]


@operator("Y", kind="pooling", T=FLOATS, amp="float32", batching="each")
@in_float32
def LpPool(
    xp: XP,
    X: T,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    p: int = 2,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> T:
    """The p-norm of what is under a window over X [N, C, ...]. ONNX LpPool."""
    window = Window(kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    places, around = ceil_padding(window, spatial("LpPool", X, window.kernel))
    data = padded(xp, powers(xp, X, p), around)
    total: Any = None
    for _, where in window.taps(places):
        if total is None:
            total = data[(..., *where)].copy()
        else:
            total += data[(..., *where)]
    return total ** (1 / p)


def powers(xp: XP, X: Array, p: int) -> Array:
    """|X| to the power p."""
    if p < 1:
        raise ArgumentError(f"there is no {p}-norm", expected="p of 1 or more")
    return xp.square(X) if p == 2 else xp.abs(X) ** p


@LpPool.gradient("X")
def _(
    g: TensorBase,
    X: TensorBase,
    Y: TensorBase,
    auto_pad: str,
    ceil_mode: int,
    dilations: Ints | None,
    kernel_shape: Ints,
    p: int,
    pads: Ints | None,
    strides: Ints | None,
) -> TensorBase:
    window = Window(kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    return slope(g, X, Y, p, lambda each: spread(each, window, X.shape))


def slope(g: TensorBase, X: TensorBase, Y: TensorBase, p: int, give: Callable[[TensorBase], TensorBase]) -> TensorBase:
    """g Y^(1 - p), which `give` hands to all that a norm Y was made of, times |X|^(p - 1) with the sign of X.
    A norm of 0 has no slope; it counts as 0."""
    if p > 1:
        nothing = OPS["Equal"](Y.detach(), constant(0, Y))
        norm = OPS["Where"](nothing, constant(1, Y), Y)
        share = OPS["Cast"](OPS["Not"](nothing), to=onnx_type(g.dtype))
        g = g * share / (norm if p == 2 else OPS["Pow"](norm, constant(p - 1, Y)))
    steep = X
    if p != 2:
        steep = OPS["Sign"](X)
        if p > 2:
            steep = OPS["Mul"](steep, OPS["Pow"](OPS["Abs"](X), constant(p - 1, X)))
    return OPS["Mul"](give(g), steep)
