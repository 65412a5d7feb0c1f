"""Pooling under a moving window over one, two or three dimensions, and its undoing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ox import ops
from ox.core.constants import ints, scalar_like, zeros
from ox.core.promotion import cast, upcast_half
from ox.core.symbolic import Dim
from ox.dtypes import float64
from ox.errors import ArgumentError, DTypeError, ShapeError
from ox.nn.functional.arguments import batched, product, several, shaped, with_indices
from ox.ops.nn.window import Window, pad_to
from ox.tensors.tensor import Tensor

__all__ = [
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d",
    "max_pool1d_with_indices", "max_pool2d", "max_pool2d_with_indices", "max_pool3d", "max_pool3d_with_indices",
    "max_unpool1d", "max_unpool2d", "max_unpool3d",
]  # fmt: skip

Size = int | Sequence[int]


def _attributes(
    rank: int, kernel: Size, stride: Size | None, padding: Size, dilation: Size, ceil_mode: bool
) -> dict[str, Any]:
    size, pads = several(kernel, rank, "kernel_size", 1), several(padding, rank, "padding", 0)
    strides = size if stride is None or stride == [] or stride == () else several(stride, rank, "stride", 1)
    dilations = several(dilation, rank, "dilation", 1)
    if any(2 * p > d * (k - 1) + 1 for p, k, d in zip(pads, size, dilations, strict=True)):
        raise ArgumentError("padding can be at most half the kernel", got=f"{pads} for kernel {size}")
    attributes: dict[str, Any] = {"kernel_shape": [*size], "strides": [*strides]}
    if any(pads):
        attributes["pads"] = [*pads, *pads]
    if any(d != 1 for d in dilations):
        attributes["dilations"] = [*dilations]
    if ceil_mode:
        attributes["ceil_mode"] = 1
    return attributes


def _is_global(x: Tensor, attributes: dict[str, Any]) -> bool:
    """Whether the window is the image, by sizes that a recording leaves open, which no attribute can hold."""
    kernel = attributes["kernel_shape"]
    return any(isinstance(k, Dim) for k in kernel) and kernel == list(x.shape[2:]) and "pads" not in attributes


def _max_pool(
    rank: int,
    input: Tensor,
    kernel_size: Size,
    stride: Size | None,
    padding: Size,
    dilation: Size,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    attributes = _attributes(rank, kernel_size, stride, padding, dilation, ceil_mode)
    one = batched(input, f"MaxPool{rank}d", rank)
    x = input if one is None else one
    dtype = x.array.dtype
    x = cast(x, float64) if dtype.kind in "iu" else x  # ONNX takes floats
    if not return_indices:
        pooled = ops.GlobalMaxPool(x) if _is_global(x, attributes) else ops.MaxPool(x, **attributes)
        y = cast(pooled, dtype)
        return y if one is None else ops.Squeeze(y, ints(0))
    y, flat = ops.MaxPool(x, **attributes, outputs=2)
    y = cast(y, dtype)
    where = ops.Mod(flat, scalar_like(product(x.shape[2:]), flat))
    return (y, where) if one is None else (ops.Squeeze(y, ints(0)), ops.Squeeze(where, ints(0)))


def max_pool1d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Largest of each window of [N, C, L] or [C, L]; see `max_pool2d`. `torch.nn.functional.max_pool1d`."""
    return _max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Largest of each window of [N, C, H, W] or [C, H, W]. `torch.nn.functional.max_pool2d`, ONNX MaxPool.

    Args:
        return_indices: also where it stood, as int64 positions in the flattened [H, W] of its channel.
    """
    return _max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Largest of each window of [N, C, D, H, W] or [C, D, H, W]; see `max_pool2d`. `torch.nn.functional.max_pool3d`."""
    return _max_pool(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


max_pool1d_with_indices = with_indices(max_pool1d)
max_pool2d_with_indices = with_indices(max_pool2d)
max_pool3d_with_indices = with_indices(max_pool3d)


def _avg_pool(
    rank: int,
    input: Tensor,
    kernel_size: Size,
    stride: Size | None,
    padding: Size,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None = None,
) -> Tensor:
    dtype = input.array.dtype
    if dtype.kind in "iu":  # ONNX takes floats; the means of whole numbers lose their fractions
        whole = cast(input, float64)
        return cast(
            _avg_pool(rank, whole, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override), dtype
        )
    attributes = _attributes(rank, kernel_size, stride, padding, 1, ceil_mode)
    if divisor_override == 0:
        raise ArgumentError("divisor_override is not 0")
    one = batched(input, f"AvgPool{rank}d", rank)
    x = input if one is None else one
    if divisor_override is None and _is_global(x, attributes):
        y = ops.GlobalAveragePool(x)
    elif divisor_override is not None:
        y = _sums(x, attributes) if ceil_mode else ops.AveragePool(x, **attributes, count_include_pad=1)
        y = ops.Div(ops.Mul(y, scalar_like(product(attributes["kernel_shape"]), y)), scalar_like(divisor_override, y))
    else:
        if "pads" in attributes and count_include_pad:
            attributes["count_include_pad"] = 1
        y = ops.AveragePool(x, **attributes)
    return y if one is None else ops.Squeeze(y, ints(0))


def _sums(x: Tensor, attributes: dict[str, Any]) -> Tensor:
    """Means that count every tap of every window, also those behind the padding that ceil_mode reaches for."""
    kernel, strides = attributes["kernel_shape"], attributes["strides"]
    window = Window(kernel, strides, None, attributes.get("pads"), ceil_mode=1)
    sizes = x.shape[2:]
    if any(isinstance(n, Dim) for n in sizes):
        places = ops.AveragePool(x.detach(), **attributes).shape[2:]  # whether there is one more depends on the size
    else:
        places = tuple(window.outputs(sizes))
    reached = [(p - 1) * s + k for p, s, k in zip(places, strides, kernel, strict=True)]
    x = pad_to(x, [before for before, _ in window.padding(sizes)], reached)
    return ops.AveragePool(x, kernel_shape=kernel, strides=strides)


def avg_pool1d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Mean of each window of [N, C, L] or [C, L]; see `avg_pool2d`. `torch.nn.functional.avg_pool1d`."""
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad)


def avg_pool2d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Mean of each window of [N, C, H, W] or [C, H, W]. `torch.nn.functional.avg_pool2d`, ONNX AveragePool.

    Args:
        count_include_pad: whether padding counts as elements; PyTorch's default is ONNX's opposite.
        divisor_override: divide by this instead of the count.
    """
    return _avg_pool(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Mean of each window of [N, C, D, H, W] or [C, D, H, W]; see `avg_pool2d`. `torch.nn.functional.avg_pool3d`."""
    return _avg_pool(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@upcast_half
def _lp_pool(
    rank: int, input: Tensor, norm_type: float, kernel_size: Size, stride: Size | None, ceil_mode: bool
) -> Tensor:
    if norm_type == 0:
        raise ArgumentError("norm_type must not be 0")
    if math.isinf(norm_type):
        # the power that all others tend to: the greatest size, or the smallest
        size = ops.Abs(input) if norm_type > 0 else ops.Neg(ops.Abs(input))
        most: Tensor = _max_pool(rank, size, kernel_size, stride, 0, 1, ceil_mode, False)
        return most if norm_type > 0 else ops.Neg(most)
    means = _avg_pool(rank, ops.Pow(input, scalar_like(norm_type, input)), kernel_size, stride, 0, ceil_mode, True)
    if means.node is not None:  # the root's slope at 0 counts as 0
        means = ops.Where(ops.Equal(means, scalar_like(0, means)), scalar_like(0, means), means)
    sums = ops.Mul(means, scalar_like(product(several(kernel_size, rank, "kernel_size", 1)), means))
    return ops.Pow(sums, scalar_like(1 / norm_type, sums))


def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False
) -> Tensor:
    """(Σ xᵖ)^(1/p) of each window of [N, C, L] or [C, L], without absolute values. `torch.nn.functional.lp_pool1d`."""
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False
) -> Tensor:
    """(Σ xᵖ)^(1/p) of each window of [N, C, H, W] or [C, H, W], without absolute values (ONNX LpPool takes them).
    `torch.nn.functional.lp_pool2d`."""
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False
) -> Tensor:
    """The same over [N, C, D, H, W] or [C, D, H, W]. `torch.nn.functional.lp_pool3d`."""
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)


def _max_unpool(
    rank: int,
    input: Tensor,
    indices: Tensor,
    kernel_size: Size,
    stride: Size | None,
    padding: Size,
    output_size: Sequence[int] | None,
) -> Tensor:
    kernel, pads = several(kernel_size, rank, "kernel_size", 1), several(padding, rank, "padding", 0)
    strides = kernel if stride is None else several(stride, rank, "stride", 1)
    if indices.static_shape != input.static_shape:
        raise ShapeError(
            f"max_unpool{rank}d takes an index for each value",
            expected=f"indices {list(input.static_shape)}",
            got=f"indices {list(indices.static_shape)}",
        )
    if indices.array.dtype != "int64":
        raise DTypeError("indices are int64", got=str(indices.array.dtype))
    one = batched(input, f"MaxUnpool{rank}d", rank)
    x, at = (input, indices) if one is None else (one, ops.Unsqueeze(indices, ints(0)))
    usual = [(n - 1) * s + k - 2 * p for n, s, k, p in zip(x.shape[2:], strides, kernel, pads, strict=True)]
    sizes: list[Any] = usual
    if output_size is not None:
        sizes = list(output_size)[-rank:]
        if len(output_size) not in (rank, rank + 1, rank + 2) or not all(
            abs(n - u) < s for n, u, s in zip(sizes, usual, strides, strict=True)
        ):
            raise ShapeError(
                "output_size is no size of an input that was pooled to this",
                expected=f"within less than a stride {strides} of {usual}",
                got=str(list(output_size)),
            )
    images, count = x.shape[:2], product(x.shape[2:])
    flat = ops.ScatterElements(
        zeros([*images, product(sizes)], x), shaped(at, [*images, count]), shaped(x, [*images, count]), axis=2
    )
    y = shaped(flat, [*images, *sizes])
    return y if one is None else ops.Squeeze(y, ints(0))


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Values put back to where `max_pool1d` took them from, among zeros; see `max_unpool2d`."""
    return _max_unpool(1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Values put back to where `max_pool2d(..., return_indices=True)` took them from, among zeros.
    `torch.nn.functional.max_unpool2d`, ONNX ScatterElements.

    Args:
        output_size: where several sizes are pooled to the same one, which it was.
    """
    return _max_unpool(2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Values put back to where `max_pool3d` took them from, among zeros; see `max_unpool2d`."""
    return _max_unpool(3, input, indices, kernel_size, stride, padding, output_size)
