"""Pooling undone: MaxUnpool Col2Im."""

from collections.abc import Sequence
from math import prod
from typing import Any

from ox.core.broadcast import reshape_to
from ox.core.operator import OPS, operator
from ox.core.symbolic import sizes_of
from ox.core.tensor import TensorBase
from ox.core.types import T1, T2, XP, HostInt64, HostT2, T
from ox.core.upcast import downcast
from ox.dtypes import ALL, FLOATS, HALF_TYPES, bool_, float32, int64
from ox.errors import ShapeError
from ox.ops.index.gather import product_of
from ox.ops.nn.window import Ints, Window, pad_to, padded, tap_slices

__all__ = ["Col2Im", "MaxUnpool"]


@operator("output", kind="image", sized_by="output_shape", T1=FLOATS, T2=(int64,), amp="widest", batching="each")
def MaxUnpool(
    xp: XP,
    X: T1,
    I: T2,  # noqa: E741
    output_shape: HostT2 = None,
    *,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> T1:
    """Zeros with each value of X at its place in I, which counts through the flattened output of the pool's own size;
    a larger `output_shape` gets that output at its beginning. ONNX MaxUnpool."""
    shape = _unpooled(X.shape, Window(kernel_shape, strides, None, pads))
    if I.shape != X.shape:
        raise ShapeError(f"MaxUnpool has indices {list(I.shape)} for values {list(X.shape)}")
    flat = xp.zeros(prod(shape), X.dtype)
    places = I.ravel()
    if places.size and (int(places.min()) < 0 or int(places.max()) >= flat.size):
        raise ShapeError("MaxUnpool has indices outside of its output", got=f"output {list(shape)}")
    flat[places] = X.ravel()
    if output_shape is None:
        return flat.reshape(shape)
    wanted = output_shape.tolist()
    if len(wanted) != len(shape) or any(n < own for n, own in zip(wanted, shape, strict=True)):
        raise ShapeError("MaxUnpool's output_shape is too small", expected=f"at least {list(shape)}", got=str(wanted))
    return padded(xp, flat.reshape(shape), [(0, n - own) for n, own in zip(wanted, shape, strict=True)])


def _unpooled(shape: Ints, window: Window) -> list[Any]:
    """The input sizes of a MaxPool with output `shape`, as far as they can be inferred."""
    around = window.padding(shape[2:])
    along = zip(shape[2:], window.strides, window.kernel, around, strict=True)
    return [*shape[:2], *((n - 1) * s + k - before - behind for n, s, k, (before, behind) in along)]


@MaxUnpool.gradient("X")
def _(
    g: TensorBase,
    X_shape: tuple[int, ...],
    I: TensorBase,  # noqa: E741
    kernel_shape: Ints,
    pads: Ints | None,
    strides: Ints | None,
) -> TensorBase:
    shape = _unpooled(X_shape, Window(kernel_shape, strides, None, pads))
    flat = reshape_to(pad_to(g, [0] * len(shape), shape), [product_of(shape)])
    # (a place that comes twice was written by one of its values; all of them take the gradient)
    return reshape_to(OPS["Gather"](flat, reshape_to(I, [product_of(X_shape)])), X_shape)


@operator("output", kind="image", sized_by="image_shape block_shape", T=ALL, amp="widest", batching="each")
def Col2Im(
    xp: XP,
    input: T,
    image_shape: HostInt64,
    block_shape: HostInt64,
    *,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> T:
    """Columns [N, C * taps, places] added up where their blocks lie in images [N, C, *image_shape].
    ONNX Col2Im, `torch.nn.functional.fold`."""
    sizes = image_shape.tolist()
    window = Window(block_shape.tolist(), strides, dilations, pads)
    places = window.outputs(sizes)
    taps = prod(window.kernel)
    if input.ndim != 3 or input.shape[1] % taps or input.shape[2] != prod(places):
        raise ShapeError(
            f"Col2Im cannot make images of {sizes} from columns {list(input.shape)}",
            expected=f"[N, C * {taps}, {prod(places)}], for blocks of {list(window.kernel)} stand at {places} places",
        )
    N, C = input.shape[0], input.shape[1] // taps
    columns = input.reshape(N, C, *window.kernel, *places)
    around = window.padding(sizes)
    wide = float32 if input.dtype in HALF_TYPES else input.dtype
    whole = xp.zeros((N, C, *(n + b + e for n, (b, e) in zip(sizes, around, strict=True))), wide)
    for tap, where in window.taps(places):
        part = columns[(slice(None), slice(None), *tap)]
        if wide == bool_:
            whole[(..., *where)] |= part
        else:
            whole[(..., *where)] += part
    inner = whole[(..., *[slice(b, b + n) for n, (b, _) in zip(sizes, around, strict=True)])]
    return downcast(inner, input.dtype) if wide != input.dtype else xp.ascontiguousarray(inner)


@Col2Im.gradient("input")
def _(
    g: TensorBase,
    image_shape: TensorBase,
    block_shape: TensorBase,
    dilations: Ints | None,
    pads: Ints | None,
    strides: Ints | None,
) -> TensorBase:
    window = Window(block_shape.array.tolist(), strides, dilations, pads)
    return unfolded(g, window, sizes_of(image_shape))


def unfolded(x: TensorBase, window: Window, sizes: Ints) -> Any:
    """Images [N, C, *sizes] to columns [N, C * taps, places]: the transpose of Col2Im."""
    around = window.padding(sizes)
    places = product_of(window.outputs(sizes))
    x = pad_to(x, [b for b, _ in around], [n + b + e for n, (b, e) in zip(sizes, around, strict=True)])
    N, C = x.shape[:2]
    met = [reshape_to(part, [N, C, 1, places]) for part in tap_slices(x, window)]
    return reshape_to(OPS["Concat"](*met, axis=2), [N, C * prod(window.kernel), places])
