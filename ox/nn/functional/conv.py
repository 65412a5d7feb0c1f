"""Convolutions over one, two or three dimensions, and their transposes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ox import ops
from ox.core.argument_errors import check_tensor_arguments
from ox.core.constants import ints
from ox.core.operator import OPS
from ox.core.promotion import cast
from ox.core.symbolic import Dim
from ox.dtypes import float64, is_floating
from ox.errors import ArgumentError, ShapeError
from ox.nn.functional.arguments import batched, several
from ox.nn.functional.varying_groups import conv_with_groups
from ox.ops.nn.window import Window
from ox.tensors.tensor import Tensor

__all__ = ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]

Size = int | Sequence[int]


def conv_attributes(stride: Size, padding: Size | str, dilation: Size, groups: int, kernel: Size) -> dict[str, Any]:
    """PyTorch's arguments as attributes of ONNX Conv; those at their default are left out."""
    size = several(kernel, len(kernel) if isinstance(kernel, Sequence) else 2, "kernel_size", 1)
    rank = len(size)
    strides, dilations = several(stride, rank, "stride", 1), several(dilation, rank, "dilation", 1)
    attributes: dict[str, Any] = {}
    if isinstance(padding, str):
        if padding == "same":
            if any(s != 1 for s in strides):
                raise ArgumentError("padding='same' needs stride 1", got=f"stride {strides}")
            total = [d * (k - 1) for d, k in zip(dilations, size, strict=True)]
            attributes["pads"] = [t // 2 for t in total] + [t - t // 2 for t in total]
        elif padding != "valid":
            raise ArgumentError(f"padding is not {padding!r}", expected="a number, 'same' or 'valid'")
    else:
        pads = several(padding, rank, "padding", 0)
        if any(pads):
            attributes["pads"] = [*pads, *pads]
    if any(s != 1 for s in strides):
        attributes["strides"] = [*strides]
    if any(d != 1 for d in dilations):
        attributes["dilations"] = [*dilations]
    if groups < 1:
        raise ArgumentError("groups are 1 or more", got=str(groups))
    if groups != 1:
        attributes["group"] = groups
    return attributes


def run_conv(
    input: Tensor, weight: Tensor, bias: Tensor | None, attributes: dict[str, Any], transposed: bool = False
) -> Tensor:
    """ONNX Conv or ConvTranspose of an input with or without a batch; whole numbers, which ONNX does not take, go
    through float64."""
    dtype = input.array.dtype
    if dtype.kind in "iu" and all(x is None or x.array.dtype == dtype for x in (weight, bias)):
        wide = [None if x is None else cast(x, float64) for x in (input, weight, bias)]
        return cast(run_conv(wide[0], wide[1], wide[2], attributes, transposed), dtype)  # type: ignore[arg-type]
    rank = weight.array.ndim - 2
    name = f"Conv{'Transpose' if transposed else ''}{rank}d"
    one = batched(input, name, rank)
    apply = OPS["ConvTranspose" if transposed else "Conv"]
    if one is not None:
        return ops.Squeeze(apply(one, weight, bias, **attributes), ints(0))
    return apply(input, weight, bias, **attributes)


def _conv(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Size,
    padding: Size | str,
    dilation: Size,
    groups: int,
) -> Tensor:
    shape = _kernel(rank, "conv", weight)
    attributes = conv_attributes(stride, padding, dilation, groups, shape)
    if isinstance(groups, Dim) and _fits_groups(input, weight, groups):
        window = Window(shape, attributes.get("strides"), attributes.get("dilations"), attributes.get("pads"))
        return conv_with_groups(input, weight, bias, groups, window)
    return run_conv(input, weight, bias, attributes)


def _fits_groups(input: Tensor, weight: Tensor, groups: int) -> bool:
    """Whether a batch of floats can be convolved in so many groups; ONNX Conv says what is wrong otherwise."""
    (_, channels, *_), (out, own, *_), count = input.static_shape, weight.static_shape, int(groups)
    floats = input.array.dtype == weight.array.dtype and is_floating(input.array.dtype)
    return floats and input.array.ndim == weight.array.ndim and (channels, out % count) == (own * count, 0)


def _kernel(rank: int, name: str, weight: Tensor) -> tuple[int, ...]:
    shape = weight.static_shape
    if len(shape) != rank + 2:
        raise ShapeError(f"{name}{rank}d takes a weight of {rank + 2} dimensions", got=f"weight {list(shape)}")
    return tuple(shape[2:])


@check_tensor_arguments
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """input [N, C, L] or [C, L], weight [out, C/groups, k], bias [out]: [N, out, L'].
    `torch.nn.functional.conv1d`, ONNX Conv."""
    return _conv(1, input, weight, bias, stride, padding, dilation, groups)


@check_tensor_arguments
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """input [N, C, H, W] or [C, H, W], weight [out, C/groups, kh, kw], bias [out]: [N, out, H', W'].
    `torch.nn.functional.conv2d`, ONNX Conv."""
    return _conv(2, input, weight, bias, stride, padding, dilation, groups)


@check_tensor_arguments
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """input [N, C, D, H, W] or [C, D, H, W], weight [out, C/groups, kd, kh, kw], bias [out]: [N, out, D', H', W'].
    `torch.nn.functional.conv3d`, ONNX Conv."""
    return _conv(3, input, weight, bias, stride, padding, dilation, groups)


def transposed_attributes(
    stride: Size, padding: Size, output_padding: Size, groups: int, dilation: Size, kernel: Sequence[int]
) -> dict[str, Any]:
    """PyTorch's arguments as attributes of ONNX ConvTranspose. Raises ArgumentError."""
    if isinstance(padding, str):
        raise ArgumentError("a transposed convolution takes no padding by name", got=repr(padding))
    attributes = conv_attributes(stride, padding, dilation, groups, kernel)
    extra = several(output_padding, len(kernel), "output_padding", 0)
    steps = attributes.get("strides", [1] * len(kernel))
    spread = attributes.get("dilations", [1] * len(kernel))
    if any(e >= max(s, d) for e, s, d in zip(extra, steps, spread, strict=True)):
        raise ArgumentError(
            "output_padding is smaller than stride or dilation",
            got=f"output_padding {extra}, stride {tuple(steps)}, dilation {tuple(spread)}",
        )
    if any(extra):
        attributes["output_padding"] = [*extra]
    return attributes


def _conv_transpose(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Size,
    padding: Size,
    output_padding: Size,
    groups: int,
    dilation: Size,
) -> Tensor:
    shape = _kernel(rank, "conv_transpose", weight)
    attributes = transposed_attributes(stride, padding, output_padding, groups, dilation, shape)
    return run_conv(input, weight, bias, attributes, transposed=True)


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Tensor:
    """input [N, C, L] or [C, L], weight [C, out/groups, k], bias [out]: [N, out, L'].
    `torch.nn.functional.conv_transpose1d`, ONNX ConvTranspose."""
    return _conv_transpose(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Tensor:
    """input [N, C, H, W] or [C, H, W], weight [C, out/groups, kh, kw], bias [out]: [N, out, H', W'].
    `torch.nn.functional.conv_transpose2d`, ONNX ConvTranspose."""
    return _conv_transpose(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Tensor:
    """input [N, C, D, H, W] or [C, D, H, W], weight [C, out/groups, kd, kh, kw], bias [out]: [N, out, D', H', W'].
    `torch.nn.functional.conv_transpose3d`, ONNX ConvTranspose."""
    return _conv_transpose(3, input, weight, bias, stride, padding, output_padding, groups, dilation)
