"""Images of other sizes: interpolate and its older names."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from typing import Any

import numpy as np

from ox import ops
from ox.core.argument_errors import check_tensor_arguments
from ox.core.constants import number
from ox.core.operator import as_input
from ox.core.promotion import cast
from ox.core.symbolic import Dim, size_tensor
from ox.dtypes import float32, float64, int64, onnx_type, uint8
from ox.errors import ArgumentError, ShapeError
from ox.nn.functional.adaptive_pool import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from ox.nn.functional.arguments import one_of, several
from ox.tensors.tensor import Tensor

__all__ = ["interpolate", "upsample", "upsample_bilinear", "upsample_nearest"]

Size = int | Sequence[int]
Scale = float | Sequence[float]

_RANKS = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}
_MODES = ("nearest", "nearest-exact", "area", *_RANKS)


@check_tensor_arguments
def interpolate(
    input: Tensor,
    size: Size | None = None,
    scale_factor: Scale | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """[N, C, ...] with one to three spatial dimensions of other sizes. `torch.nn.functional.interpolate`, ONNX Resize.

    Args:
        size: the spatial sizes, or
        scale_factor: how many times the old ones, rounded down.
        mode: "nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear" (by number of dimensions) or
            "area", the means of `adaptive_avg_pool`.
        align_corners: whether the middles of the corner elements stay at the corners, rather than the outer edges.
        recompute_scale_factor: whether the scale is then taken from the rounded sizes.
        antialias: for "bilinear" and "bicubic": whether a smaller image is made of all elements that it covers.
    """
    one_of(mode, "mode", _MODES)
    rank = input.array.ndim - 2
    if not 1 <= rank <= 3 or _RANKS.get(mode, rank) != rank:
        expected = f"{_RANKS[mode] + 2} dimensions for {mode!r}" if mode in _RANKS else "3, 4 or 5 dimensions"
        raise ShapeError(
            "interpolate takes [batch, channels, ...]", expected=expected, got=f"{list(input.static_shape)}"
        )
    if align_corners is not None and mode not in _RANKS:
        raise ArgumentError(f"mode {mode!r} does not support align_corners", expected=", ".join(_RANKS))
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ArgumentError("antialias is for the modes 'bilinear' and 'bicubic'", got=repr(mode))
    if antialias and align_corners:
        raise ArgumentError("antialias does not support align_corners=True", hint="align_corners=False")
    if (size is None) == (scale_factor is None):
        raise ArgumentError(
            "interpolate takes either size or scale_factor", got=f"size={size}, scale_factor={scale_factor}"
        )
    if size is not None and recompute_scale_factor:
        raise ArgumentError("recompute_scale_factor is for a scale_factor", got=f"size={size}")
    sizes = input.shape[2:]
    scales: list[float] | None = None
    if size is not None:
        wanted: list[Any] = [*several(size, rank, "size", 1)]
    else:
        scales = _scales(scale_factor, rank)
        wanted = [_scaled(n, s) for n, s in zip(sizes, scales, strict=True)]
        if any(n < 1 for n in wanted):
            raise ShapeError("the result of interpolate would be empty", got=f"size {[int(n) for n in wanted]}")
    if not all(input.static_shape[1:]):
        raise ShapeError("interpolate takes no empty images", got=f"input {list(input.static_shape)}")
    if mode == "area":
        return (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[rank - 1](input, tuple(wanted))
    if input.array.dtype == uint8 and not mode.startswith("nearest"):  # rounded, halves up, where ONNX drops fractions
        wide = interpolate(
            cast(input, float32), size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
        )
        return cast(
            ops.Clip(ops.Floor(ops.Add(wide, number(0.5, wide.dtype))), number(0, wide.dtype), number(255, wide.dtype)),
            uint8,
        )
    attributes = _attributes(mode, align_corners, antialias)
    attributes["axes"] = list(range(2, 2 + rank))
    if scales is not None and not recompute_scale_factor and not align_corners:
        # the scale itself counts, not the quotient of the sizes
        factors = as_input(np.array([_fitting(n, s) for n, s in zip(sizes, scales, strict=True)], np.float32))
        return ops.Resize(input, None, factors, **attributes)
    return ops.Resize(input, None, None, size_tensor(wanted), **attributes)


def _attributes(mode: str, align_corners: bool | None, antialias: bool) -> dict[str, Any]:
    if mode == "nearest":
        return {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    if mode == "nearest-exact":
        return {"mode": "nearest", "nearest_mode": "round_prefer_ceil"}
    attributes: dict[str, Any] = {"mode": "cubic" if mode == "bicubic" else "linear"}
    if align_corners:
        attributes["coordinate_transformation_mode"] = "align_corners"
    if antialias:
        attributes |= {"antialias": 1, "exclude_outside": 1}
        if mode == "bicubic":
            attributes["cubic_coeff_a"] = -0.5
    return attributes


def _scales(scale_factor: Any, rank: int) -> list[float]:
    given = list(scale_factor) if isinstance(scale_factor, (tuple, list)) else [scale_factor] * rank
    if len(given) != rank or not all(isinstance(s, (int, float)) and s > 0 for s in given):
        raise ArgumentError(
            f"scale_factor is a positive number, or one for each of {rank} dimensions", got=repr(scale_factor)
        )
    return [float(s) for s in given]


def _scaled(n: int, scale: float) -> Any:
    """`scale` times a size that may be an `ox.Dim`, rounded down."""
    if not isinstance(n, Dim):
        return floor(n * scale)
    if scale == int(scale):
        return n * int(scale)

    def make() -> Tensor:
        product: Any = ops.Mul(ops.Cast(n.tensor, to=onnx_type(float64)), number(scale, float64))
        return ops.Cast(ops.Floor(product), to=onnx_type(int64))

    return Dim(floor(int(n) * scale), make)


def _fitting(n: int, scale: float) -> np.float32:
    """The scale in float32, moved by a last bit where ONNX's product in float32 would round to another size."""
    near, wanted = np.float32(scale), floor(int(n) * scale)
    for _ in range(4):
        size = int(np.floor(np.float32(int(n)) * near))
        if isinstance(n, Dim) or size == wanted:
            break
        near = np.nextafter(near, np.float32(0 if size > wanted else np.inf))
    return near


def upsample(
    input: Tensor,
    size: Size | None = None,
    scale_factor: Scale | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """`interpolate` under an older name."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Size | None = None, scale_factor: Scale | None = None) -> Tensor:
    """`interpolate` with mode "nearest"."""
    return interpolate(input, size, scale_factor)


def upsample_bilinear(input: Tensor, size: Size | None = None, scale_factor: Scale | None = None) -> Tensor:
    """`interpolate` with mode "bilinear" and aligned corners."""
    return interpolate(input, size, scale_factor, "bilinear", align_corners=True)
