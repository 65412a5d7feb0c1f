"""The gradient of Resize. Along each axis it is a matrix, which Resize itself makes of the unit vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ox.core import operator
from ox.core.broadcast import reshape_to
from ox.core.constants import axes_tensor, on_device_of, positions
from ox.core.operator import OPS
from ox.core.symbolic import size_tensor
from ox.core.tensor import TensorBase, TensorType
from ox.dtypes import onnx_type
from ox.ops.index.gather import product_of


def resized_back(
    g: TensorType,
    shape: Sequence[int],
    axes: Sequence[int],
    roi: TensorBase | None,
    scales: TensorBase | None,
    sizes: TensorBase | None,
    policy: str,
    options: dict[str, Any],
) -> TensorType:
    """A cotangent of Resize along `axes`, brought back to `shape`."""
    by_scale = scales is not None and scales.array.size > 0
    if policy != "stretch" and not by_scale:
        return _together(g, shape, axes, sizes, policy, options)
    crops = options["coordinate_transformation_mode"] == "tf_crop_and_resize"
    for k, axis in enumerate(axes):
        n, m = shape[axis], g.shape[axis]
        if by_scale and not crops and scales._recorded is None and scales.array[k] == 1:  # type: ignore[union-attr]
            continue
        if not by_scale and not crops and n == m:
            continue
        part = _picked(roi, [k, k + len(axes)], [0, 0, 0, 1, 1, 1]) if crops else None
        if by_scale:
            last = {"scales": _picked(scales, [k], [1, 1, 1])}
        else:
            last = {"sizes": size_tensor([1, 1, n, m])}
        unit = reshape_to(_unit(n, g), [1, 1, n, n])
        matrix = OPS["Resize"](unit, part, last.get("scales"), last.get("sizes"), **options)
        g = applied(g, reshape_to(matrix, [n, m]), axis)
    return g


def _picked(host: Any, places: Sequence[int], ones: Sequence[int]) -> TensorBase:
    """Numbers of a host input for the last of four axes, of which the others stay as they are: behind `ones` for a
    scale, and for a roi a start behind three zeros and an end behind three ones."""
    chosen = OPS["Gather"](host, axes_tensor(places))
    fixed = np.array(ones, host.array.dtype)
    if len(places) == 1:
        return OPS["Concat"](operator.as_input(fixed), chosen, axis=0)
    first, last = OPS["Split"](chosen, axes_tensor([1, 1]), outputs=2)
    return OPS["Concat"](operator.as_input(fixed[:3]), first, operator.as_input(fixed[3:]), last, axis=0)


def _unit(n: int, like: TensorType) -> TensorType:
    """The unit matrix [n, n] in the type and on the device of `like`."""
    row = positions(n)
    same = OPS["Equal"](OPS["Unsqueeze"](row, axes_tensor([1])), OPS["Unsqueeze"](row, axes_tensor([0])))
    return on_device_of(OPS["Cast"](same, to=onnx_type(like.dtype)), like)


def applied(g: TensorBase, matrix: TensorBase, axis: int) -> Any:
    """[n, m] times g along an axis of size m."""
    rank = g.ndim
    if axis == rank - 1:
        return OPS["MatMul"](g, OPS["Transpose"](matrix, perm=[1, 0]))
    if axis == rank - 2:
        return OPS["MatMul"](matrix, g)
    perm = [*(i for i in range(rank) if i != axis), axis]
    turned = OPS["MatMul"](OPS["Transpose"](g, perm=perm), OPS["Transpose"](matrix, perm=[1, 0]))
    return OPS["Transpose"](turned, perm=[perm.index(i) for i in range(rank)])


def _together(
    g: TensorType, shape: Sequence[int], axes: Sequence[int], sizes: Any, policy: str, options: dict[str, Any]
) -> TensorType:
    """If one scale is chosen for all axes, the axes are not independent: one matrix for all of them."""
    rank = len(shape)
    others = [i for i in range(rank) if i not in axes]
    perm = [*others, *axes]
    old, new = [shape[a] for a in axes], [g.shape[a] for a in axes]
    many, few = product_of(old), product_of(new)
    unit = reshape_to(_unit(many, g), [many, 1, *old])
    along = list(range(2, 2 + len(axes)))
    matrix = OPS["Resize"](unit, None, None, sizes, axes=along, keep_aspect_ratio_policy=policy, **options)
    rest = [shape[i] for i in others]
    rows = reshape_to(OPS["Transpose"](g, perm=perm), [product_of(rest), few])
    back = OPS["MatMul"](rows, OPS["Transpose"](reshape_to(matrix, [many, few]), perm=[1, 0]))
    return OPS["Transpose"](reshape_to(back, [*rest, *old]), perm=[perm.index(i) for i in range(rank)])
