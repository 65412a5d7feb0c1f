"""Images looked at through a grid: GridSample AffineGrid."""

from typing import Any

import numpy as np

from ox.core import operator as choke
from ox.core.broadcast import expand_to, reshape_to
from ox.core.constants import zeros
from ox.core.mode import switch_mode
from ox.core.operator import OPS, operator
from ox.core.symbolic import size_tensor
from ox.core.tensor import TensorBase
from ox.core.types import T1, T2, XP, HostT2
from ox.core.upcast import downcast, in_float32
from ox.dtypes import ALL, FLOATS, HALF_TYPES, int64, is_floating, onnx_type
from ox.errors import ArgumentError, ShapeError
from ox.ops.index.gather import product_of
from ox.ops.vision.interpolation import grid_gradient, prepared, sample, sampled_back

__all__ = ["AffineGrid", "GridSample"]


@operator("Y", kind="image", T1=ALL, T2=FLOATS, amp="float32", batching="each")
def GridSample(
    xp: XP, X: T1, grid: T2, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> T1:
    """The values of X [N, C, ...] at the coordinates of a grid [N, ..., rank], from -1 to 1, the last axis of X first.
    ONNX GridSample, `torch.nn.functional.grid_sample`."""
    if mode not in ("linear", "nearest", "cubic") or padding_mode not in ("zeros", "border", "reflection"):
        raise ArgumentError(
            f"GridSample has no mode {mode!r} with padding_mode {padding_mode!r}",
            expected="linear, nearest or cubic; zeros, border or reflection",
        )
    rank = X.ndim - 2
    if rank < 1 or grid.ndim != X.ndim or grid.shape[0] != X.shape[0] or grid.shape[-1] != rank or 0 in X.shape[2:]:
        raise ShapeError(
            f"GridSample cannot look at {list(X.shape)} through a grid {list(grid.shape)}",
            expected=f"X [N, C, ...] that is not empty, grid [N, ..., {max(rank, 1)}] of {X.ndim} dimensions",
        )
    wide: Any = np.float32 if X.dtype in HALF_TYPES else X.dtype if is_floating(X.dtype) else np.float64
    with switch_mode(recording=None, grad=False, executor=None, autocast=None):
        data, at = (choke.make_tensor(a.astype(wide, copy=False)) for a in (X, grid))
        axes = prepared(at, X.shape[2:], mode, padding_mode, align_corners)
        made = sample(data, axes, grid.shape[1:-1]).array
    return downcast(made, X.dtype)


@GridSample.gradient("X", "grid")
def _(
    g: TensorBase,
    X: TensorBase,
    grid: TensorBase,
    align_corners: int,
    mode: str,
    padding_mode: str,
    needs: tuple[bool, bool],
) -> tuple[TensorBase | None, TensorBase | None]:
    at = grid if grid.dtype == g.dtype else OPS["Cast"](grid, to=onnx_type(g.dtype))
    axes = prepared(at, X.shape[2:], mode, padding_mode, align_corners)
    to_x = sampled_back(g, X.shape, axes) if needs[0] else None
    to_grid = None
    if needs[1]:
        to_grid = zeros(grid.shape, at) if mode == "nearest" else grid_gradient(g, X, axes, grid.shape)
        to_grid = OPS["Cast"](to_grid, to=onnx_type(grid.dtype))
    return to_x, to_grid


@operator("grid", kind="image", sized_by="size", T1=FLOATS, T2=(int64,), amp="float32", batching="each")
@in_float32
def AffineGrid(xp: XP, theta: T1, size: HostT2, *, align_corners: int = 0) -> T1:
    """The grid [N, H, W, 2] or [N, D, H, W, 3] through which GridSample turns, stretches and moves images of `size`
    by matrices theta [N, 2, 3] or [N, 3, 4]. ONNX AffineGrid, `torch.nn.functional.affine_grid`."""
    sizes = size.tolist()[2:]
    rank = len(sizes)
    if rank not in (2, 3) or theta.ndim != 3 or theta.shape[1:] != (rank, rank + 1) or theta.shape[0] != size[0]:
        raise ShapeError(
            f"AffineGrid cannot make a grid for {size.tolist()} of matrices {list(theta.shape)}",
            expected="theta [N, 2, 3] for [N, C, H, W], or [N, 3, 4] for [N, C, D, H, W]",
        )
    out = xp.empty((theta.shape[0], *sizes, rank), theta.dtype)
    out[...] = theta[:, :, rank].reshape(-1, *[1] * rank, rank)
    for i, n in enumerate(reversed(sizes)):  # the last axis comes first
        if align_corners:
            line = np.linspace(-1, 1, n) if n > 1 else np.zeros(n)
        else:
            line = (2 * np.arange(n) + 1) / max(n, 1) - 1
        along = xp.asarray(line.astype(theta.dtype).reshape([-1 if k == rank - 1 - i else 1 for k in range(rank)]))
        out += along[None, ..., None] * theta[:, :, i].reshape(-1, *[1] * rank, rank)
    return out


@AffineGrid.gradient("theta")
def _(g: TensorBase, theta_shape: tuple[int, ...], align_corners: int) -> TensorBase:
    rank = int(theta_shape[1])
    sizes = g.shape[1:-1]
    # the grid of the unit matrix holds the places themselves
    unit = choke.as_input(np.eye(rank, rank + 1, dtype=g.dtype)[None])
    places = AffineGrid(unit, size_tensor([1, 1, *sizes]), align_corners=align_corners)
    count = product_of(sizes)
    places = reshape_to(places, [count, rank])
    one = expand_to(choke.as_input(np.ones((1, 1), g.dtype)), [count, 1])
    columns = OPS["Transpose"](reshape_to(g, [g.shape[0], count, rank]), perm=[0, 2, 1])
    return OPS["MatMul"](columns, OPS["Concat"](places, one, axis=1))
