"""Blocks of elements that change places: Tile DepthToSpace SpaceToDepth ReverseSequence CenterCropPad."""

from collections.abc import Sequence
from typing import Any

from ox.core.broadcast import reshape_to
from ox.core.constants import axes_tensor
from ox.core.operator import OPS, operator
from ox.core.symbolic import size_tensor, sizes_of
from ox.core.tensor import TensorBase
from ox.core.types import XP, Array, HostInt64, HostTind, Int64, T
from ox.dtypes import ALL, int32, int64
from ox.errors import ArgumentError, ShapeError

__all__ = ["CenterCropPad", "DepthToSpace", "ReverseSequence", "SpaceToDepth", "Tile"]


@operator("output", kind="repetition", sized_by="repeats", T=ALL, amp="widest", batching="own")
def Tile(xp: XP, input: T, repeats: HostInt64) -> T:
    """Copies side by side, so many along each axis. ONNX Tile."""
    times = repeats.tolist()
    if len(times) != input.ndim or min(times, default=0) < 0:
        raise ShapeError(
            f"Tile of {list(input.shape)} by {times}", expected=f"{input.ndim} counts of 0 or more", got=str(times)
        )
    return xp.tile(input, times)


@Tile.gradient("input")
def _(g: TensorBase, repeats: TensorBase, input_shape: tuple[int, ...]) -> TensorBase:
    if not input_shape:
        return g
    apart = [size for pair in zip(sizes_of(repeats), input_shape, strict=True) for size in pair]
    return OPS["ReduceSum"](reshape_to(g, apart), axes_tensor(range(0, len(apart), 2)), keepdims=0)


# of [N, C, H, W] with C taken apart: where the two axes of a block stand among channels, and how they move
_TO_SPACE = {"DCR": (0, 3, 4, 1, 5, 2), "CRD": (0, 1, 4, 2, 5, 3)}
_TO_DEPTH = {"DCR": (0, 3, 5, 1, 2, 4), "CRD": (0, 1, 3, 5, 2, 4)}


def _mode(mode: str) -> str:
    if mode not in _TO_SPACE:
        raise ArgumentError(f"no mode {mode!r} of depth and space", expected="DCR or CRD")
    return mode


@operator("output", kind="permutation", T=ALL, amp="widest", batching="each")
def DepthToSpace(xp: XP, input: T, *, blocksize: int, mode: str = "DCR") -> T:
    """[N, C, H, W] to [N, C / b², H·b, W·b]: groups of channels become blocks of b × b places; in mode "DCR" the block
    is the outer part of the channel's number, in "CRD" the inner one (`torch.nn.PixelShuffle`). ONNX DepthToSpace."""
    if input.ndim != 4 or blocksize < 1 or input.shape[1] % (blocksize * blocksize):
        raise ShapeError(
            f"DepthToSpace of {list(input.shape)} in blocks of {blocksize}",
            expected=f"[N, C, H, W] with C divisible by {blocksize * blocksize}",
        )
    n, c, h, w = input.shape
    b, inner = blocksize, c // (blocksize * blocksize)
    apart = input.reshape((n, b, b, inner, h, w) if _mode(mode) == "DCR" else (n, inner, b, b, h, w))
    return apart.transpose(_TO_SPACE[mode]).reshape(n, inner, h * b, w * b)


@DepthToSpace.gradient("input")
def _(g: TensorBase, input_shape: tuple[int, ...], blocksize: int, mode: str) -> TensorBase:
    if mode == "DCR":
        return SpaceToDepth(g, blocksize=blocksize)
    # SpaceToDepth has this mode only from opset 28 on
    n, c, h, w = input_shape
    apart = reshape_to(g, [n, c // (blocksize * blocksize), h, blocksize, w, blocksize])
    return reshape_to(OPS["Transpose"](apart, perm=_TO_DEPTH[mode]), input_shape)


@operator("output", kind="permutation", T=ALL, amp="widest", batching="each")
def SpaceToDepth(xp: XP, input: T, *, blocksize: int, mode: str = "DCR") -> T:
    """[N, C, H, W] to [N, C·b², H / b, W / b]: `DepthToSpace` undone. ONNX SpaceToDepth."""
    if input.ndim != 4 or blocksize < 1 or input.shape[2] % blocksize or input.shape[3] % blocksize:
        raise ShapeError(
            f"SpaceToDepth of {list(input.shape)} in blocks of {blocksize}",
            expected=f"[N, C, H, W] with H and W divisible by {blocksize}",
        )
    n, c, h, w = input.shape
    b = blocksize
    apart = input.reshape(n, c, h // b, b, w // b, b)
    return apart.transpose(_TO_DEPTH[_mode(mode)]).reshape(n, c * b * b, h // b, w // b)


@SpaceToDepth.gradient("input")
def _(g: TensorBase, blocksize: int, mode: str) -> TensorBase:
    return DepthToSpace(g, blocksize=blocksize, mode=mode)


@operator("Y", kind="permutation", T=ALL, amp="widest", batching="each")
def ReverseSequence(xp: XP, input: T, sequence_lens: Int64, *, batch_axis: int = 1, time_axis: int = 0) -> T:
    """Reverses each sequence of the batch over its length; the rest stays. ONNX ReverseSequence."""
    batch, time = batch_axis % max(input.ndim, 1), time_axis % max(input.ndim, 1)
    if input.ndim < 2 or batch == time or sequence_lens.shape != (input.shape[batch],):
        raise ShapeError(
            f"ReverseSequence of {list(input.shape)} along {time_axis} with lengths {list(sequence_lens.shape)}",
            expected="two dimensions or more, two different axes, and a length for each sequence of the batch",
        )
    if xp.__name__ == "numpy" and len(sequence_lens):
        longest = input.shape[time]
        if sequence_lens.min() < 0 or sequence_lens.max() > longest:
            raise IndexError(f"the lengths {sequence_lens.tolist()} reach beyond a time axis of {longest}")
    steps, lens = xp.arange(input.shape[time]), sequence_lens[:, None]
    places = xp.where(steps < lens, lens - 1 - steps, steps)  # [batch, time]
    places = places if batch < time else places.T
    return xp.take_along_axis(input, places.reshape(_beside(input, (batch, time))), time)


def _beside(x: Array, axes: Sequence[int]) -> list[int]:
    return [n if i in axes else 1 for i, n in enumerate(x.shape)]


@ReverseSequence.gradient("input")
def _(g: TensorBase, sequence_lens: TensorBase, batch_axis: int, time_axis: int) -> TensorBase:
    return ReverseSequence(g, sequence_lens, batch_axis=batch_axis, time_axis=time_axis)


@operator("output_data", kind="padding", sized_by="shape", T=ALL, Tind=(int32, int64), amp="widest", batching="each")
def CenterCropPad(xp: XP, input_data: T, shape: HostTind, *, axes: Sequence[int] | None = None) -> T:
    """Cut or padded with zeros to the sizes `shape` of the given axes, evenly, an odd place at the end. ONNX
    CenterCropPad."""
    along = list(range(input_data.ndim)) if axes is None else [a % input_data.ndim for a in axes]
    wanted: Any = list(input_data.shape)
    for axis, size in zip(along, shape.tolist(), strict=True):
        wanted[axis] = size
    taken, placed = [], []
    for have, want in zip(input_data.shape, wanted, strict=True):
        cut, gap = max(have - want, 0) // 2, max(want - have, 0) // 2
        taken.append(slice(cut, cut + min(have, want)))
        placed.append(slice(gap, gap + min(have, want)))
    out = xp.zeros(wanted, input_data.dtype)
    out[tuple(placed)] = input_data[tuple(taken)]
    return out


@CenterCropPad.gradient("input_data")
def _(g: TensorBase, input_data_shape: tuple[int, ...], axes: Sequence[int] | None) -> TensorBase:
    along = range(len(input_data_shape)) if axes is None else axes
    return CenterCropPad(g, size_tensor([input_data_shape[a] for a in along]), axes=axes)
