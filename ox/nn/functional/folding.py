"""Blocks of images as columns, and channels as places: fold, unfold, and the shuffles."""

from __future__ import annotations

from collections.abc import Sequence

from ox import ops
from ox.core.constants import ints
from ox.core.symbolic import size_tensor
from ox.errors import ArgumentError, ShapeError
from ox.nn.functional.arguments import product, several, shaped
from ox.ops.nn.unpool import unfolded
from ox.ops.nn.window import Window
from ox.tensors.tensor import Tensor

__all__ = ["channel_shuffle", "fold", "native_channel_shuffle", "pixel_shuffle", "pixel_unshuffle", "unfold"]

Size = int | Sequence[int]


def _window(kernel_size: Size, dilation: Size, padding: Size, stride: Size) -> Window:
    pads = several(padding, 2, "padding", 0)
    return Window(
        several(kernel_size, 2, "kernel_size", 1),
        several(stride, 2, "stride", 1),
        several(dilation, 2, "dilation", 1),
        [*pads, *pads],
    )


def unfold(input: Tensor, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1) -> Tensor:
    """Every block of images [N, C, H, W] as a column: [N, C·kh·kw, blocks]. `torch.nn.functional.unfold` (im2col)."""
    window = _window(kernel_size, dilation, padding, stride)
    one = _images(input, "unfold", 4, "[batch, channels, height, width]")
    x = input if one is None else one
    try:
        columns = unfolded(x, window, x.shape[2:])
    except ValueError as error:
        raise ShapeError(f"unfold finds no block in images of {list(x.static_shape[2:])}", got=str(error)) from None
    return columns if one is None else ops.Squeeze(columns, ints(0))


def fold(
    input: Tensor, output_size: Size, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1
) -> Tensor:
    """Columns [N, C·kh·kw, blocks] added up where their blocks lie: [N, C, *output_size]. `torch.nn.functional.fold`,
    ONNX Col2Im."""
    window = _window(kernel_size, dilation, padding, stride)
    one = _images(input, "fold", 3, "[batch, channels·kernel, blocks]")
    sizes = size_tensor(several(output_size, 2, "output_size", 1))
    attributes = {"strides": [*window.strides], "pads": [*window.pads], "dilations": [*window.dilations]}
    images = ops.Col2Im(input if one is None else one, sizes, ints(*window.kernel), **attributes)
    return images if one is None else ops.Squeeze(images, ints(0))


def _images(input: Tensor, name: str, rank: int, expected: str) -> Tensor | None:
    if input.array.ndim == rank:
        return None
    if input.array.ndim != rank - 1:
        raise ShapeError(
            f"{name} does not take {input.array.ndim} dimensions",
            expected=f"input {expected}, or without the batch",
            got=f"input {list(input.static_shape)}",
        )
    return ops.Unsqueeze(input, ints(0))


def _factor(factor: int, name: str) -> int:
    if not isinstance(factor, int) or factor < 1:
        raise ArgumentError(f"{name} is a whole number of 1 or more", got=repr(factor))
    return factor


def _unfit(name: str, input: Tensor, expected: str) -> ShapeError:
    return ShapeError(
        f"{name} cannot divide the sizes of the input", expected=expected, got=f"input {list(input.static_shape)}"
    )


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """[..., C·r², H, W] to [..., C, H·r, W·r]. `torch.nn.functional.pixel_shuffle`."""
    r, rank = _factor(upscale_factor, "upscale_factor"), input.array.ndim
    if rank < 3 or input.static_shape[-3] % (r * r):
        raise _unfit("pixel_shuffle", input, f"[..., channels, height, width] with a multiple of {r * r} channels")
    *lead, c, h, w = input.shape
    x = shaped(input, [product(lead), c // (r * r), r, r, h, w])
    x = ops.Transpose(x, perm=[0, 1, 4, 2, 5, 3])
    return shaped(x, [*lead, c // (r * r), h * r, w * r])


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """[..., C, H·r, W·r] to [..., C·r², H, W]: `pixel_shuffle` undone. `torch.nn.functional.pixel_unshuffle`."""
    r, rank = _factor(downscale_factor, "downscale_factor"), input.array.ndim
    if rank < 3 or input.static_shape[-2] % r or input.static_shape[-1] % r:
        raise _unfit("pixel_unshuffle", input, f"[..., channels, height, width], both multiples of {r}")
    *lead, c, h, w = input.shape
    x = shaped(input, [product(lead), c, h // r, r, w // r, r])
    x = ops.Transpose(x, perm=[0, 1, 3, 5, 2, 4])
    return shaped(x, [*lead, c * r * r, h // r, w // r])


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """[N, C, ...] with the channels of `groups` groups dealt out in turn. `torch.nn.functional.channel_shuffle`."""
    g = _factor(groups, "groups")
    if input.array.ndim < 3 or input.static_shape[1] % g:
        raise _unfit("channel_shuffle", input, f"[batch, channels, ...] with a multiple of {g} channels")
    n, c, *rest = input.shape
    x = shaped(input, [n, g, c // g, product(rest)])
    return shaped(ops.Transpose(x, perm=[0, 2, 1, 3]), [n, c, *rest])


def native_channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """The same. `torch.native_channel_shuffle`."""
    return channel_shuffle(input, groups)
