"""Convolutions over any number of spatial dimensions: Conv ConvTranspose.

Both kernels are one matrix product and a loop of slices over whichever is fewer: the taps of the kernel, or its places.
The second is the case of a weight gradient, where kernel and data have exchanged their parts.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

from ox.core.constants import axes_tensor
from ox.core.operator import OPS, operator
from ox.core.symbolic import Dim
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import XP, Array, T
from ox.core.upcast import in_float32
from ox.dtypes import FLOATS
from ox.errors import ShapeError
from ox.ops.nn.conv_weight_gradient import weight_gradient
from ox.ops.nn.window import Ints, Window, pad_to, padded, positive

__all__ = ["Conv", "ConvTranspose"]

CHUNK = 1 << 22  # elements of unfolded data that are multiplied at once; more would only travel through memory


@operator("Y", kind="convolution", T=FLOATS, amp="lower", batching="images", weights="W B")
@in_float32
def Conv(
    xp: XP,
    X: T,
    W: T,
    B: T = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> T:
    """Convolution of X [N, C, ...] with W [M, C / group, ...] plus B [M]. ONNX Conv, `torch.nn.functional.conv2d`."""
    channels = group > 0 and X.shape[1:2] == (W.shape[1] * group,) and W.shape[0] % group == 0
    _fits("Conv", X, W, B, group, channels, kernel_shape)
    window = Window(W.shape[2:], strides, dilations, pads, auto_pad)
    sizes = X.shape[2:]
    places = window.outputs(sizes)
    Y = _correlate(xp, padded(xp, X, window.padding(sizes)), W, window, places, group)
    if B is not None:
        Y += B.reshape(-1, *[1] * len(sizes))
    return Y


def _fits(name: str, X: Array, W: Array, B: Any, group: int, channels: bool, kernel: Ints | None) -> None:
    if X.ndim != W.ndim or X.ndim < 3 or not channels:
        raise ShapeError(
            f"{name} cannot apply a kernel {list(W.shape)} to {list(X.shape)}",
            expected=f"[N, {W.shape[1] * group if name == 'Conv' else W.shape[0]}, ...] of {W.ndim} dimensions",
            got=f"{list(X.shape)} with group={group}",
        )
    if kernel is not None and tuple(kernel) != W.shape[2:]:
        raise ShapeError(f"{name} has kernel_shape {list(kernel)} for weights {list(W.shape)}")
    if B is not None and B.shape != ((W.shape[0] if name == "Conv" else W.shape[1] * group),):
        raise ShapeError(f"{name} has a bias {list(B.shape)} for weights {list(W.shape)} with group={group}")


def _correlate(xp: XP, X: Array, W: Array, window: Window, places: Ints, group: int) -> Array:
    """X [N, C, ...], already padded, with W [M, C / group, ...] -> [N, M, *places]."""
    N, C = X.shape[:2]
    M, taps, P = W.shape[0], prod(window.kernel), prod(places)
    Y = xp.empty((N, M, *places), X.dtype)
    if not Y.size or not W.size:
        Y[...] = 0
        return Y
    if taps == 1 and tuple(places) == X.shape[2:]:
        return xp.matmul(W.reshape(group, M // group, -1), X.reshape(N, group, C // group, P)).reshape(Y.shape)
    step = max(1, min(N, CHUNK // max(1, C * taps * P)))
    for first in range(0, N, step):
        x = X[first : first + step]
        n = len(x)
        if taps <= P:
            x = x.swapaxes(0, 1)
            unfolded = xp.empty((C, *window.kernel, n, *places), X.dtype)
            for tap, where in window.taps(places):
                unfolded[(slice(None), *tap)] = x[(..., *where)]
            multiplied = xp.matmul(W.reshape(group, M // group, -1), unfolded.reshape(group, C // group * taps, n * P))
            Y[first : first + n] = multiplied.reshape(M, n, *places).swapaxes(0, 1)
        else:
            unfolded = xp.empty((group, *places, n, C // group, *window.kernel), X.dtype)
            x = x.reshape(n, group, C // group, *x.shape[2:]).swapaxes(0, 1)
            for place, where in window.positions(places):
                unfolded[(slice(None), *place)] = x[(..., *where)]
            weights = W.reshape(group, M // group, -1).swapaxes(1, 2)
            multiplied = xp.matmul(unfolded.reshape(group, P * n, -1), weights).reshape(group, P, n, M // group)
            Y[first : first + n] = multiplied.transpose(2, 0, 3, 1).reshape(n, M, *places)
    return Y


@Conv.gradient("X")
def _(
    g: TensorBase,
    W: TensorBase,
    X_shape: tuple[int, ...],
    auto_pad: str,
    dilations: Ints | None,
    group: int,
    pads: Ints | None,
    strides: Ints | None,
) -> TensorBase:
    window = Window(W.shape[2:], strides, dilations, pads, auto_pad)
    placed = window.padding(X_shape[2:])
    if all(s == 1 for s in window.strides):
        # every place of X was met, so the pads alone make the size right
        turned = [(extent - 1 - b, extent - 1 - e) for extent, (b, e) in zip(window.extents, placed, strict=True)]
        if group == 1 and all(b >= 0 and e >= 0 for b, e in turned):
            around = [*(b for b, _ in turned), *(e for _, e in turned)]
            return Conv(g, _turned(W), dilations=window.dilations, pads=around)
        around = [*(b for b, _ in placed), *(e for _, e in placed)]
        return ConvTranspose(g, W, dilations=window.dilations, strides=window.strides, group=group, pads=around)
    missed = _missed(X_shape[2:], g.shape[2:], window, placed)
    if missed is not None:
        around = [*(b for b, _ in placed), *(e for _, e in placed)]
        return ConvTranspose(
            g, W, dilations=window.dilations, strides=window.strides, group=group, pads=around, output_padding=missed
        )
    full = ConvTranspose(g, W, dilations=window.dilations, strides=window.strides, group=group)
    return pad_to(full, [-b for b, _ in placed], X_shape[2:])


def _missed(
    sizes: Sequence[Any], places: Sequence[Any], window: Window, placed: Sequence[tuple[Any, Any]]
) -> list[int] | None:
    """How many of the last places of X no window met, in each dimension; None where sizes vary, or where ConvTranspose
    takes no such `output_padding`."""
    borders = [border for both in placed for border in both]
    if any(isinstance(size, Dim) for size in (*sizes, *places, *borders)):
        return None
    missed = [
        size + b + e - (count - 1) * stride - extent
        for size, count, stride, extent, (b, e) in zip(
            sizes, places, window.strides, window.extents, placed, strict=True
        )
    ]
    fits = all(0 <= miss < stride for miss, stride in zip(missed, window.strides, strict=True))
    return missed if fits and min(borders) >= 0 else None


def _turned(W: TensorType) -> TensorType:
    """The kernel by which a Conv does what a ConvTranspose with W does, and faster: turned in every spatial dimension,
    with input and output exchanged."""
    rank = W.ndim - 2
    spatial = list(range(2, 2 + rank))
    W = OPS["Transpose"](W, perm=[1, 0, *spatial])
    back = axes_tensor([-1] * rank)
    return OPS["Slice"](W, back, axes_tensor([-(2**62)] * rank), axes_tensor(spatial), back)


@Conv.gradient("W")
def _(
    g: TensorBase,
    X: TensorBase,
    W_shape: tuple[int, ...],
    auto_pad: str,
    dilations: Ints | None,
    group: int,
    pads: Ints | None,
    strides: Ints | None,
) -> TensorBase:
    window = Window(W_shape[2:], strides, dilations, pads, auto_pad)
    return weight_gradient(X, g, window, window.padding(X.shape[2:]), W_shape[2:], group)


def _bias_gradient(g: TensorType) -> TensorType:
    return OPS["ReduceSum"](g, axes_tensor([0, *range(2, g.ndim)]), keepdims=0)


@Conv.gradient("B")
def _(g: TensorBase) -> TensorBase:
    return _bias_gradient(g)


@operator("Y", kind="convolution", T=FLOATS, amp="lower", batching="images", weights="W B")
@in_float32
def ConvTranspose(
    xp: XP,
    X: T,
    W: T,
    B: T = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> T:
    """The transpose of a Conv, from X [N, C, ...] with W [C, M / group, ...], plus B [M]. ONNX ConvTranspose,
    `torch.nn.functional.conv_transpose2d`."""
    channels = group > 0 and X.shape[1:2] == W.shape[:1] and W.shape[0] % group == 0
    _fits("ConvTranspose", X, W, B, group, channels, kernel_shape)
    window = Window(W.shape[2:], strides, dilations, pads, auto_pad)
    full = _full(X.shape[2:], window)
    sizes, placed = _transposed(X.shape[2:], window, output_padding, output_shape)
    Y = _spread(xp, X, W, window, full, group)
    Y = padded(xp, Y, [(-b, n + b - f) for n, (b, _), f in zip(sizes, placed, full, strict=True)])
    Y = xp.ascontiguousarray(Y)
    if B is not None:
        Y += B.reshape(-1, *[1] * len(sizes))
    return Y


def _full(places: Ints, window: Window) -> list[int]:
    """The sizes of data that windows at `places` just cover."""
    return [(p - 1) * s + e for p, s, e in zip(places, window.strides, window.extents, strict=True)]


def _transposed(
    places: Ints, window: Window, output_padding: Ints | None, output_shape: Ints | None
) -> tuple[list[int], list[tuple[int, int]]]:
    """The output sizes, and how much is cut off before and behind."""
    rank = len(window.kernel)
    extra = output_padding or [0] * rank
    full = [f + more for f, more in zip(_full(places, window), extra, strict=True)]
    if output_shape is None and not window.same:
        placed = window.padding(places)
        return [f - b - e for f, (b, e) in zip(full, placed, strict=True)], placed
    wanted: Any = output_shape or [p * s for p, s in zip(places, window.strides, strict=True)]
    wanted = list(wanted)[-rank:]
    cuts = []
    for f, n in zip(full, wanted, strict=True):
        # what is too little comes as zeros, all of them behind
        first = _first_cut(max(f - n, 0), window)
        cuts.append((first, f - n - first))
    return wanted, cuts


def _first_cut(total: int, window: Window) -> int:
    """How much of what is cut off in all is cut off in front: only SAME_UPPER cuts more behind."""
    return total // 2 if window.auto_pad == "SAME_UPPER" else (total + 1) // 2


def _spread(xp: XP, X: Array, W: Array, window: Window, full: Ints, group: int) -> Array:
    """Every element of X [N, C, ...] times its kernel W [C, M / group, ...], added up where the kernels fall."""
    N, C, places = X.shape[0], X.shape[1], X.shape[2:]
    m, taps, P = W.shape[1], prod(window.kernel), prod(places)
    M = m * group
    if not X.size or not W.size:
        return xp.zeros((N, M, *full), X.dtype)
    if taps == 1 and tuple(full) == places:
        weights = W.reshape(group, C // group, m).swapaxes(1, 2)
        return xp.matmul(weights, X.reshape(N, group, C // group, P)).reshape(N, M, *full)
    Y = xp.empty((N, M, *full), X.dtype)
    step = max(1, min(N, CHUNK // max(1, M * taps * P)))
    for first in range(0, N, step):
        x = X[first : first + step]
        n = len(x)
        x = x.reshape(n, group, C // group, P)
        if taps <= P:
            weights = W.reshape(group, C // group, m * taps).swapaxes(1, 2)
            multiplied = xp.matmul(weights, x.transpose(1, 2, 0, 3).reshape(group, C // group, n * P))
            multiplied = multiplied.reshape(M, *window.kernel, n, *places)
            y = xp.zeros((M, n, *full), X.dtype)
            for tap, where in window.taps(places):
                y[(..., *where)] += multiplied[(slice(None), *tap)]
        else:
            weights = W.reshape(group, C // group, -1)
            multiplied = xp.matmul(x.transpose(1, 3, 0, 2).reshape(group, P * n, C // group), weights)
            multiplied = multiplied.reshape(group, *places, n, m, *window.kernel)
            spread = xp.zeros((group, n, m, *full), X.dtype)
            for place, where in window.positions(places):
                spread[(..., *where)] += multiplied[(slice(None), *place)]
            y = spread.swapaxes(1, 2).reshape(M, n, *full)
        Y[first : first + n] = y.swapaxes(0, 1)
    return Y


def _refilled(
    g: TensorBase,
    places: Ints,
    window: Window,
    output_padding: Ints | None,
    output_shape: Ints | None,
) -> tuple[TensorBase, list[tuple[Any, Any]]]:
    """A cotangent of ConvTranspose, and the pads under which a Conv over it finds the places again."""
    if output_shape is None and not window.same and not any(output_padding or ()):
        return g, window.padding(places)
    full = _full(places, window)
    extra = output_padding or [0] * len(full)
    whole = [f + more for f, more in zip(full, extra, strict=True)]
    _, cuts = _transposed(places, window, output_padding, output_shape)
    if output_shape is None and not window.same:
        begins: list[Any] = [b for b, _ in cuts]
    else:
        begins = [_first_cut(positive(w - n), window) for w, n in zip(whole, g.shape[2:], strict=True)]
    return pad_to(g, begins, full), [(0, 0)] * len(full)


@ConvTranspose.gradient("X", "W")
def _(
    g: TensorBase,
    X: TensorBase,
    W: TensorBase,
    auto_pad: str,
    dilations: Ints | None,
    group: int,
    output_padding: Ints | None,
    output_shape: Ints | None,
    pads: Ints | None,
    strides: Ints | None,
    needs: tuple[bool, bool],
) -> tuple[TensorBase | None, TensorBase | None]:
    window = Window(W.shape[2:], strides, dilations, pads, auto_pad)
    g, placed = _refilled(g, X.shape[2:], window, output_padding, output_shape)
    to_x = to_w = None
    if needs[0]:
        around = [*(b for b, _ in placed), *(e for _, e in placed)]
        to_x = Conv(g, W, pads=around, strides=window.strides, dilations=window.dilations, group=group)
    if needs[1]:
        # the transpose has data and cotangent exchanged
        open_window = Window(W.shape[2:], strides, dilations, None)
        to_w = weight_gradient(g, X, open_window, placed, W.shape[2:], group)
    return to_x, to_w


@ConvTranspose.gradient("B")
def _(g: TensorBase) -> TensorBase:
    return _bias_gradient(g)
