"""Convolution and pooling over two dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox import ops
from ox.errors import ArgumentError, ShapeError
from ox.nn.functional.common import ints, number, pair
from ox.ops.explain import place
from ox.ops.operator import as_input
from ox.tensor import Tensor

Pair = int | tuple[int, int]


def conv_attributes(stride: Pair, padding: Pair | str, dilation: Pair, groups: int, kernel: Pair) -> dict[str, Any]:
    """PyTorch's arguments as attributes of ONNX Conv; those at their default are left out."""
    strides, dilations, size = pair(stride), pair(dilation), pair(kernel)
    attributes: dict[str, Any] = {}
    if isinstance(padding, str):
        if padding == "same":
            if strides != (1, 1):
                raise ArgumentError("padding='same' needs stride 1", where=place(), got=f"stride {strides}")
            total = [d * (k - 1) for d, k in zip(dilations, size, strict=True)]
            attributes["pads"] = [t // 2 for t in total] + [t - t // 2 for t in total]
        elif padding != "valid":
            raise ArgumentError(f"padding is not {padding!r}", where=place(), expected="a number, 'same' or 'valid'")
    elif pair(padding) != (0, 0):
        attributes["pads"] = [*pair(padding)] * 2
    if strides != (1, 1):
        attributes["strides"] = [*strides]
    if dilations != (1, 1):
        attributes["dilations"] = [*dilations]
    if groups != 1:
        attributes["group"] = groups
    return attributes


def batched(input: Tensor, name: str) -> Tensor | None:
    """None when input is [N, C, H, W]; with a batch of one added when it is [C, H, W]. Raises ShapeError."""
    rank = input.data.ndim
    if rank == 4:
        return None
    if rank != 3:
        raise ShapeError(
            f"{name} does not take {rank} dimensions",
            where=place(),
            expected="input [batch, channels, height, width]",
            got=f"input {list(input.data.shape)}",
        )
    return ops.Unsqueeze(input, ints(0))


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> Tensor:
    """input [N, C, H, W] or [C, H, W], weight [out, C/groups, kh, kw], bias [out]: [N, out, H', W'].
    `torch.nn.functional.conv2d`, ONNX Conv."""
    kh, kw = weight.data.shape[2:]
    return run_conv(input, weight, bias, conv_attributes(stride, padding, dilation, groups, (kh, kw)))


def run_conv(input: Tensor, weight: Tensor, bias: Tensor | None, attributes: dict[str, Any]) -> Tensor:
    one = batched(input, "Conv2d")
    if one is not None:
        return ops.Squeeze(ops.Conv(one, weight, bias, **attributes), ints(0))
    return ops.Conv(input, weight, bias, **attributes)  # type: ignore[no-any-return]


def pad(input: Tensor, pad: tuple[int, ...], mode: str = "constant", value: float = 0.0) -> Tensor:
    """Pad the last dimensions, innermost first: (left, right, top, bottom, ...). `torch.nn.functional.pad`, ONNX Pad.

    Args:
        mode: "constant", "reflect", "replicate" or "circular".
    """
    modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    if mode not in modes or len(pad) % 2 or len(pad) > 2 * input.data.ndim:
        raise ArgumentError(
            f"pad does not take {pad} with mode {mode!r}",
            where=place(),
            expected=f"pairs for at most {input.data.ndim} dimensions; " + ", ".join(modes),
        )
    rank, count = input.data.ndim, len(pad) // 2
    begin, end = [0] * rank, [0] * rank
    for i in range(count):
        begin[rank - 1 - i], end[rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    if mode == "constant":
        return ops.Pad(input, ints(*begin, *end), number(value, input))
    return ops.Pad(input, ints(*begin, *end), mode=modes[mode])


def _pool_attributes(kernel: Pair, stride: Pair | None, padding: Pair, ceil_mode: bool) -> dict[str, Any]:
    size, pads = pair(kernel), pair(padding)
    if any(2 * p > k for p, k in zip(pads, size, strict=True)):
        raise ArgumentError("padding can be at most half the kernel", where=place(), got=f"{pads} for kernel {size}")
    attributes: dict[str, Any] = {"kernel_shape": [*size], "strides": [*(size if stride is None else pair(stride))]}
    if pads != (0, 0):
        attributes["pads"] = [*pads, *pads]
    if ceil_mode:
        attributes["ceil_mode"] = 1
    return attributes


def max_pool2d(
    input: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    dilation: Pair = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Largest of each window of [N, C, H, W] or [C, H, W]. `torch.nn.functional.max_pool2d`, ONNX MaxPool.

    Args:
        return_indices: also where it stood, as int64 positions in the flattened [H, W] of its channel.
    """
    attributes = _pool_attributes(kernel_size, stride, padding, ceil_mode)
    if pair(dilation) != (1, 1):
        attributes["dilations"] = [*pair(dilation)]
    one = batched(input, "MaxPool2d")
    x = input if one is None else one
    if not return_indices:
        y = ops.MaxPool(x, **attributes)
        return y if one is None else ops.Squeeze(y, ints(0))
    y, flat = ops.MaxPool(x, **attributes, outputs=2)
    where = ops.Mod(flat, number(x.shape[2] * x.shape[3], flat))
    return (y, where) if one is None else (ops.Squeeze(y, ints(0)), ops.Squeeze(where, ints(0)))


def avg_pool2d(
    input: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Mean of each window of [N, C, H, W] or [C, H, W]. `torch.nn.functional.avg_pool2d`, ONNX AveragePool.

    Args:
        count_include_pad: whether padding counts as elements; PyTorch's default is ONNX's opposite.
        divisor_override: divide by this instead of the count.
    """
    attributes = _pool_attributes(kernel_size, stride, padding, ceil_mode)
    if divisor_override is not None and ceil_mode:
        raise ArgumentError("divisor_override cannot be combined with ceil_mode", where=place())
    if "pads" in attributes and (count_include_pad or divisor_override is not None):
        attributes["count_include_pad"] = 1
    one = batched(input, "AvgPool2d")
    y = ops.AveragePool(input if one is None else one, **attributes)
    if divisor_override is not None:
        kh, kw = pair(kernel_size)
        y = ops.Mul(y, number(kh * kw / divisor_override, y))
    return y if one is None else ops.Squeeze(y, ints(0))


def adaptive_avg_pool2d(input: Tensor, output_size: int | tuple[int | None, int | None] | None) -> Tensor:
    """Means over as many near-equal windows as the output has places: [N, C, H', W'], None keeps a size.
    `torch.nn.functional.adaptive_avg_pool2d`.

    One place is ONNX GlobalAveragePool, sizes that divide are AveragePool, others two products with the matrices of
    the windows. Only one place works for heights and widths that a recording leaves open.
    """
    out_h, out_w = pair(output_size)
    one = batched(input, "AdaptiveAvgPool2d")
    x = input if one is None else one
    h, w = x.data.shape[2:]
    out_h, out_w = out_h or h, out_w or w
    if (out_h, out_w) == (1, 1):
        y = ops.GlobalAveragePool(x)
    elif h % out_h == 0 and w % out_w == 0:
        size = [h // out_h, w // out_w]
        y = ops.AveragePool(x, kernel_shape=size, strides=size)
    else:
        y = ops.MatMul(ops.MatMul(_windows(h, out_h, x), x), ops.Transpose(_windows(w, out_w, x), perm=[1, 0]))
    return y if one is None else ops.Squeeze(y, ints(0))


def _windows(size: int, out: int, like: Tensor) -> Tensor:
    """[out, size]: row i is the mean over elements floor(i·size/out) .. ceil((i+1)·size/out) - 1."""
    matrix = np.zeros((out, size), like.data.dtype)
    for i in range(out):
        start, end = i * size // out, -(-(i + 1) * size // out)
        matrix[i, start:end] = 1 / (end - start)
    return as_input(matrix)
