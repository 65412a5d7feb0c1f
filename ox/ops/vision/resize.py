"""Resampling along axes: Resize Upsample.

Every mode is separable: along each axis an output place is a weighted sum of a few input places, its taps.
"""

from collections.abc import Callable, Sequence
from math import floor
from typing import Any, NamedTuple

import numpy as np

from ox.core.operator import OPS, Operator, operator
from ox.core.tensor import TensorBase
from ox.core.types import T1, XP, Array, HostFloat32, HostInt64, HostT2, T
from ox.core.upcast import downcast
from ox.dtypes import ALL, HALF_TYPES, bfloat16, bool_, float16, float32, float64, is_floating
from ox.errors import ArgumentError, ShapeError

__all__ = ["Resize", "Upsample"]

FEW = 4  # taps that are added up one by one; more are a product with a matrix
COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize",
)  # fmt: skip
NEAREST: dict[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


class Along(NamedTuple):
    """One axis: its size, the size and the scale that it gets, and the part of it that is looked at."""

    axis: int
    size: int
    wanted: int
    scale: float
    roi: tuple[float, float] | None


@operator(
    "Y", kind="image", sized_by="scales sizes", T1=ALL, T2=(float16, float32, float64), amp="widest", batching="each"
)
def Resize(
    xp: XP,
    X: T1,
    roi: HostT2 = None,
    scales: HostFloat32 = None,
    sizes: HostInt64 = None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> T1:
    """X with axes of other sizes, which `scales` or `sizes` tell: the nearest value, or between values a line or a
    cubic. ONNX Resize, `torch.nn.functional.interpolate`."""
    if coordinate_transformation_mode not in COORDINATES or mode not in ("nearest", "linear", "cubic"):
        raise ArgumentError(
            f"Resize has no mode {mode!r} with {coordinate_transformation_mode!r}",
            expected="nearest, linear or cubic; " + ", ".join(COORDINATES),
        )
    if nearest_mode not in NEAREST or (antialias and mode == "nearest"):
        raise ArgumentError(
            f"Resize has no nearest_mode {nearest_mode!r} with antialias={antialias}",
            expected=", ".join(NEAREST) + ", without antialias",
        )
    planned = _planned(X.shape, axes, roi, scales, sizes, keep_aspect_ratio_policy)
    crops = coordinate_transformation_mode == "tf_crop_and_resize"
    blend = mode != "nearest"
    dtype = X.dtype
    data = X
    if blend and dtype not in (float32, float64):
        data = X.astype(float32 if dtype in HALF_TYPES else float64)
    outside: list[tuple[int, Any]] = []
    for along in planned:
        if along.size == along.wanted and abs(along.scale - 1) < 1e-9 and not crops:
            continue
        if not along.size and along.wanted:
            raise ShapeError("Resize cannot make something of nothing", got=f"X {list(X.shape)}")
        x = _sources(along, coordinate_transformation_mode)
        if crops:
            outside.append((along.axis, (x < 0) | (x > along.size - 1)))
        if not blend:
            places = NEAREST[nearest_mode](x).clip(0, max(along.size - 1, 0)).astype(np.int64)
            data = xp.take(data, xp.asarray(places), axis=along.axis)
        else:
            places, weights = _taps(x, along, mode, antialias, cubic_coeff_a, exclude_outside)
            data = _blended(xp, data, along.axis, places, weights)
    if crops:
        data = _extrapolated(xp, data, outside, extrapolation_value)
    elif data is X:
        return X.copy()
    if data.dtype == dtype:
        return data
    if is_floating(dtype):
        return downcast(data, dtype)
    if dtype == bool_:
        return xp.rint(data) != 0
    limits = np.iinfo(dtype)
    return xp.rint(data).clip(limits.min, limits.max).astype(dtype)


def _planned(shape: Sequence[int], axes: Any, roi: Any, scales: Any, sizes: Any, policy: str) -> list[Along]:
    rank = len(shape)
    chosen = list(range(rank)) if axes is None else [a % rank for a in axes]
    by_scale = scales is not None and scales.size > 0
    given = scales if by_scale else sizes
    if given is None or given.size != len(chosen) or (by_scale and sizes is not None and sizes.size):
        got = {name: None if a is None else a.tolist() for name, a in (("scales", scales), ("sizes", sizes))}
        raise ShapeError(
            "Resize takes either scales or sizes", expected=f"{len(chosen)} numbers, one for each axis", got=str(got)
        )
    if given.min() < 0 or (by_scale and given.min() <= 0):
        raise ArgumentError("Resize makes nothing smaller than nothing", got=str(given.tolist()))
    old = [shape[a] for a in chosen]
    if by_scale:
        # in float32, as the standard's own shape inference and the runtimes do
        factors = [float(str(s)) for s in given]  # 0.6 is meant, not the nearest float32
        wanted = [int(np.floor(np.float32(n) * s)) for n, s in zip(old, given, strict=True)]
    else:
        wanted = given.tolist()
        factors = [w / n if n else 1.0 for w, n in zip(wanted, old, strict=True)]
        if policy in ("not_larger", "not_smaller"):
            common = min(factors) if policy == "not_larger" else max(factors)
            factors = [common] * len(old)
            wanted = [int(common * n + 0.5) for n in old]
        elif policy != "stretch":
            raise ArgumentError(
                f"Resize has no keep_aspect_ratio_policy {policy!r}", expected="stretch, not_larger or not_smaller"
            )
    bounds: list[Any] = [None] * len(old)
    if roi is not None and roi.size:
        bounds = [(float(a), float(b)) for a, b in zip(roi[: len(old)], roi[len(old) :], strict=True)]
    return [Along(*each) for each in zip(chosen, old, wanted, factors, bounds, strict=True)]


def _sources(along: Along, coordinates: str) -> Any:
    """The input coordinate of each output element, float64 [outputs]."""
    y = np.arange(along.wanted, dtype=np.float64)
    n, length = along.size, along.scale * along.size
    if coordinates == "align_corners":
        return np.zeros(along.wanted) if length == 1 else y * (n - 1) / (length - 1)
    if coordinates == "tf_crop_and_resize":
        if along.roi is None:
            raise ArgumentError("Resize in the mode tf_crop_and_resize needs roi")
        first, last = along.roi
        middle = (last - first) * (n - 1)
        return first * (n - 1) + (np.full(along.wanted, middle / 2) if length == 1 else y * middle / (length - 1))
    stretched = along.wanted == length  # then the scale is a quotient of whole numbers, and so is what it divides
    if coordinates == "asymmetric":
        return y * n / along.wanted if stretched else y / along.scale
    if coordinates == "pytorch_half_pixel" and length == 1:
        return np.full(along.wanted, -0.5)
    x = ((y + 0.5) * n / along.wanted if stretched else (y + 0.5) / along.scale) - 0.5
    return x if coordinates != "half_pixel_symmetric" else x + n / 2 * (1 - along.wanted / length)


def _taps(x: Any, along: Along, mode: str, antialias: int, a: float, exclude_outside: int) -> tuple[Any, Any]:
    """Which places each output place is made of, int64 [wanted, taps], and their weights, float64 [wanted, taps]."""
    reach = 1 if mode == "linear" else 2
    scale = min(along.scale, 1.0) if antialias else 1.0
    first = floor(-reach / scale) + 1
    # a place that is met exactly counts as the right end of its interval
    places = (np.ceil(x) - 1)[:, None] + np.arange(first, 2 - first)
    distance = np.abs(places - x[:, None]) * scale
    if mode == "linear":
        weights = (1 - distance).clip(0, 1)
    else:
        near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        weights = np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
    if antialias:
        weights /= weights.sum(axis=1, keepdims=True)
    if exclude_outside:
        weights = np.where((places < 0) | (places >= along.size), 0.0, weights)
        total = weights.sum(axis=1, keepdims=True)
        weights /= np.where(total == 0, 1.0, total)
    return places.clip(0, along.size - 1).astype(np.int64), weights


def _blended(xp: XP, data: Array, axis: int, places: Any, weights: Any) -> Array:
    """The weighted sums of taps along an axis."""
    wanted, taps = places.shape
    if taps > FEW:
        matrix = np.zeros((data.shape[axis], wanted))
        for k in range(taps):
            np.add.at(matrix, (places[:, k], np.arange(wanted)), weights[:, k])
        found = xp.matmul(xp.moveaxis(data, axis, -1), xp.asarray(matrix.astype(data.dtype)))
        return xp.ascontiguousarray(xp.moveaxis(found, -1, axis))
    shape = [-1 if i == axis else 1 for i in range(data.ndim)]
    total: Any = None
    for k in range(taps):
        part = xp.take(data, xp.asarray(places[:, k]), axis=axis)
        part *= xp.asarray(weights[:, k].astype(data.dtype).reshape(shape))
        total = part if total is None else xp.add(total, part, out=total)
    return total


def _extrapolated(xp: XP, data: Array, outside: list[tuple[int, Any]], value: float) -> Array:
    out = xp.array(data)
    for axis, beyond in outside:
        out[tuple([xp.asarray(beyond) if i == axis else slice(None) for i in range(axis + 1)])] = value
    return out


@Resize.gradient("X")
def _(
    g: TensorBase,
    X_shape: tuple[int, ...],
    roi: TensorBase | None,
    scales: TensorBase | None,
    sizes: TensorBase | None,
    antialias: int,
    axes: Sequence[int] | None,
    coordinate_transformation_mode: str,
    cubic_coeff_a: float,
    exclude_outside: int,
    keep_aspect_ratio_policy: str,
    mode: str,
    nearest_mode: str,
) -> TensorBase:
    from ox.ops.vision.resize_gradient import resized_back

    options = {
        "antialias": antialias,
        "coordinate_transformation_mode": coordinate_transformation_mode,
        "cubic_coeff_a": cubic_coeff_a,
        "exclude_outside": exclude_outside,
        "mode": mode,
        "nearest_mode": nearest_mode,
    }
    chosen = list(range(len(X_shape))) if axes is None else [a % len(X_shape) for a in axes]
    return resized_back(g, X_shape, chosen, roi, scales, sizes, keep_aspect_ratio_policy, options)


class Retired(Operator):
    """An operator that no newer opset has: a call is a call of what took its place."""

    kind = "image"
    sized_by = ("scales",)
    amp = "keep"  # the policy applies to the newer operator
    batching = "each"  # no recording holds it

    def __call__(self, *inputs: Any, mode: str = "nearest", **outputs: Any) -> Any:
        X, scales = inputs
        return Resize(X, None, scales, mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def _upsample(xp: XP, X: T, scales: HostFloat32, *, mode: str = "nearest") -> T:
    """X with axes `scales` times as long. ONNX Upsample of opset 9, which Resize replaced."""
    return Resize.kernel(
        xp, X, None, scales, mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )


_upsample.__name__ = "Upsample"
Upsample = OPS["Upsample"] = Retired(_upsample, "Y", {"T": tuple(d for d in ALL if d != bfloat16)}, view=False)
