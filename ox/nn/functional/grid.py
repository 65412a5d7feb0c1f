"""Images looked at through a grid: grid_sample, affine_grid."""

from __future__ import annotations

from collections.abc import Sequence

from ox import ops
from ox.core.symbolic import size_tensor
from ox.errors import ArgumentError, ShapeError
from ox.nn.functional.arguments import one_of
from ox.tensors.tensor import Tensor

__all__ = ["affine_grid", "grid_sample"]

_MODES = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Values of input [N, C, H, W] at grid [N, H', W', (x, y)], or of [N, C, D, H, W] at [N, D', H', W', (x, y, z)],
    with coordinates from -1 to 1. `torch.nn.functional.grid_sample`, ONNX GridSample.

    Args:
        mode: "bilinear" (also of three dimensions), "nearest", or of two dimensions "bicubic".
        padding_mode: the values outside: "zeros", "border" or "reflection".
        align_corners: whether -1 and 1 are the middles of the corner elements, rather than the outer edges.
    """
    one_of(mode, "mode", tuple(_MODES))
    one_of(padding_mode, "padding_mode", ("zeros", "border", "reflection"))
    shape, through = input.static_shape, grid.static_shape
    rank = len(shape) - 2
    if (
        rank not in (2, 3)
        or len(through) != len(shape)
        or through[0] != shape[0]
        or through[-1] != rank
        or not all(shape[2:])
    ):
        raise ShapeError(
            "the shapes of input and grid do not fit grid_sample",
            expected="input [N, C, H, W] and grid [N, H', W', 2], or [N, C, D, H, W] and [N, D', H', W', 3]",
            got=f"input {list(shape)}, grid {list(through)}",
        )
    if mode == "bicubic" and rank != 2:
        raise ArgumentError("mode 'bicubic' is for two dimensions", got=f"input {list(shape)}")
    return ops.GridSample(
        input, grid, mode=_MODES[mode], padding_mode=padding_mode, align_corners=int(bool(align_corners))
    )


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid [N, H, W, 2] or [N, D, H, W, 3] by which `grid_sample` turns, stretches and moves images of `size` as
    the matrices theta [N, 2, 3] or [N, 3, 4] say. `torch.nn.functional.affine_grid`, ONNX AffineGrid."""
    shape, rank = theta.static_shape, len(size) - 2
    if rank not in (2, 3) or shape != (size[0], rank, rank + 1) or any(n < 1 for n in size):
        raise ShapeError(
            "affine_grid takes a matrix for each image",
            expected="theta [N, 2, 3] for size (N, C, H, W), or [N, 3, 4] for (N, C, D, H, W)",
            got=f"theta {list(shape)}, size {[int(n) for n in size]}",
        )
    return ops.AffineGrid(theta, size_tensor(size), align_corners=int(bool(align_corners)))
