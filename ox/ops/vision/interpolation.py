"""Values of images between their places, in operators: what GridSample is made of, and its gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

from ox.core.broadcast import expand_to, reshape_to
from ox.core.constants import axes_tensor, constant, size_like, zeros
from ox.core.operator import OPS
from ox.core.symbolic import Dim
from ox.core.tensor import TensorBase, TensorType
from ox.dtypes import int64, onnx_type
from ox.ops.index.gather import product_of

_A = -0.75  # of the cubic's two polynomials; R. Keys, "Cubic convolution interpolation", 1981


class Tap(NamedTuple):
    """Along one axis: which place [N, P], with which weight, and how that grows with the coordinate; None is 1 and 0.
    `inside` is 0 where the place is none."""

    place: TensorBase
    weight: TensorBase | None
    growth: Any
    inside: TensorBase | None


class Axis(NamedTuple):
    """The taps of one axis, and how its coordinate grows with the grid's; None is nowhere at all."""

    taps: list[Tap]
    growth: Any


def coordinates(c: TensorBase, n: int, align: int) -> TensorBase:
    """Places among n for coordinates of which -1 and 1 are the ends, or with `align` the middles of the end places."""
    return (c + 1) * (size_like(n - 1, c) * 0.5) if align else ((c + 1) * size_like(n, c) - 1) * 0.5


def bounded(p: TensorBase, n: int, padding: str, align: int) -> tuple[TensorBase, Any]:
    """Coordinates clipped or reflected to the image, depending on the padding, and their derivatives."""
    if padding == "zeros":
        return p, 1.0
    top, slope = size_like(n - 1, p), None
    if padding == "reflection":
        low, span = (0.0, top) if align else (-0.5, size_like(n, p))
        span = OPS["Max"](span, constant(1e-6, p))  # a single place has no span; the bounds below then decide
        away = p - low
        far = OPS["Abs"](away)
        turns = OPS["Floor"]((far / span).detach())
        rest = far - turns * span
        odd = turns - OPS["Floor"](turns * 0.5) * 2
        slope = OPS["Sign"](away.detach()) * (1 - 2 * odd)
        p = rest * (1 - 2 * odd) + odd * span + low
    within = OPS["And"](OPS["Greater"](p.detach(), constant(0, p)), OPS["Less"](p.detach(), top))
    within = OPS["Cast"](within, to=onnx_type(p.dtype))
    return OPS["Clip"](p, constant(0, p), top), within if slope is None else slope * within


def taps(p: TensorBase, mode: str) -> list[tuple[TensorBase, TensorBase | None, Any]]:
    """(place as a float, weight, its growth with p) of each tap."""
    if mode == "nearest":
        return [(OPS["Round"](p.detach()), None, None)]
    base = OPS["Floor"](p.detach())
    f = p - base
    if mode == "linear":
        return [(base, 1 - f, -1.0), (base + 1, f, 1.0)]
    return [
        (base - 1, _far(f + 1), _far_slope(f + 1)),
        (base, _inner_kernel(f), _inner_kernel_slope(f)),
        (base + 1, _inner_kernel(1 - f), -_inner_kernel_slope(1 - f)),
        (base + 2, _far(2 - f), -_far_slope(2 - f)),
    ]


def _inner_kernel(t: TensorBase) -> Any:
    return (t * (_A + 2) - (_A + 3)) * t * t + 1


def _inner_kernel_slope(t: TensorBase) -> Any:
    return (t * (3 * (_A + 2)) - 2 * (_A + 3)) * t


def _far(t: TensorBase) -> Any:
    return ((t * _A - 5 * _A) * t + 8 * _A) * t - 4 * _A


def _far_slope(t: TensorBase) -> Any:
    return (t * (3 * _A) - 10 * _A) * t + 8 * _A


def axis_of(c: TensorBase, n: int, mode: str, padding: str, align: int) -> Axis:
    """The taps of coordinates c [N, P] along an axis of n places. A padding moves the coordinate back to the image, but
    of a cubic every tap by itself (so do PyTorch and ONNX Runtime; the standard does not say)."""
    each = mode == "cubic"
    p, growth = coordinates(c, n, align), size_like(n - 1 if align else n, c) * 0.5
    if not each:
        p, slope = bounded(p, n, padding, align)
        growth = growth * slope
    found = []
    for place, weight, steep in taps(p, mode):
        if each:
            place, _ = bounded(place, n, padding, align)
        found.append(_tap(place, weight, steep, n, padding == "zeros"))
    return Axis(found, growth)


def axis_between(p: TensorBase, n: int) -> Axis:
    """The two taps of places p [N, P] that lie between places of an axis, beyond which there are zeros."""
    return Axis([_tap(*tap, n, True) for tap in taps(p, "linear")], 1.0)


def _tap(place: TensorBase, weight: TensorBase | None, growth: Any, n: int, zeros_around: bool) -> Tap:
    """A tap at a place that is a float."""
    index = OPS["Cast"](place, to=onnx_type(int64))
    first, last = _integer(0), OPS["Squeeze"](_size(n - 1), axes_tensor([0]))
    inside = None
    if zeros_around:
        met = OPS["And"](OPS["GreaterOrEqual"](index, first), OPS["LessOrEqual"](index, last))
        inside = OPS["Cast"](met, to=onnx_type(place.dtype))
    return Tap(OPS["Clip"](index, first, last), weight, growth, inside)


def _integer(value: int) -> TensorBase:
    return OPS["Squeeze"](axes_tensor([value]), axes_tensor([0]))


def _size(n: int) -> TensorBase:
    return n.tensor if isinstance(n, Dim) else axes_tensor([n])


def _flat(met: Sequence[Tap], sizes: Sequence[int]) -> TensorBase:
    """The place of a tap in its flattened image."""
    total: Any = None
    for tap, n in zip(met, sizes, strict=True):
        total = tap.place if total is None else OPS["Add"](OPS["Mul"](total, _size(n)), tap.place)
    return total


def _weight(met: Sequence[Tap], grown: int | None = None) -> Any:
    """The product of the taps' weights, or of the growth of one and the weights of the others, and 0 where one lies
    outside. None is 1."""
    return _product([*(tap.growth if i == grown else tap.weight for i, tap in enumerate(met)), _inside(met)])


def _inside(met: Sequence[Tap]) -> Any:
    return _product([tap.inside for tap in met])


def _product(factors: Sequence[Any]) -> Any:
    total: Any = None
    for factor in factors:
        if factor is not None:
            total = factor if total is None else total * factor
    return total


def _gather_pixels(images: TensorType, place: TensorBase) -> TensorType:
    """[N, C, places of the image] at `place` [N, P]: [N, C, P]."""
    shape = [*images.shape[:2], place.shape[1]]
    return OPS["GatherElements"](images, expand_to(OPS["Unsqueeze"](place, axes_tensor([1])), shape), axis=2)


def _combined(axes: Sequence[Axis]) -> Iterator[tuple[Tap, ...]]:
    return product(*(axis.taps for axis in axes))


def prepared(grid: TensorBase, sizes: Sequence[int], mode: str, padding: str, align: int) -> list[Axis]:
    """The taps along each axis of images for a grid [N, ..., rank], whose last coordinate belongs to the first axis."""
    rank = len(sizes)
    flat = reshape_to(grid, [grid.shape[0], product_of(grid.shape[1:-1]), rank])
    parts = OPS["Split"](flat, axis=2, num_outputs=rank, outputs=rank) if rank > 1 else (flat,)
    parts = [OPS["Squeeze"](part, axes_tensor([2])) for part in parts]
    return [axis_of(c, n, mode, padding, align) for c, n in zip(reversed(parts), sizes, strict=True)]


def sample(X: TensorType, axes: Sequence[Axis], out: Sequence[int]) -> TensorType:
    """The values of X [N, C, ...] as [N, C, *out]."""
    sizes = X.shape[2:]
    images = reshape_to(X, [*X.shape[:2], product_of(sizes)])
    total: Any = None
    for met in _combined(axes):
        part, weight, inside = (
            _gather_pixels(images, _flat(met, sizes)),
            _product([tap.weight for tap in met]),
            _inside(met),
        )
        if inside is not None:  # not a product: values outside may be NaN
            met_there = OPS["Unsqueeze"](OPS["Greater"](inside, constant(0, inside)), axes_tensor([1]))
            part = OPS["Where"](met_there, part, constant(0, part))
        if weight is not None:
            part = part * OPS["Unsqueeze"](weight, axes_tensor([1]))
        total = part if total is None else total + part
    return reshape_to(total, [*X.shape[:2], *out])


def sampled_back(g: TensorType, shape: Sequence[int], axes: Sequence[Axis]) -> TensorType:
    """A cotangent of `sample`, added up in images of `shape`."""
    N, C = shape[:2]
    g = reshape_to(g, [N, C, product_of(g.shape[2:])])
    places, parts = [], []
    for met in _combined(axes):
        weight = _weight(met)
        places.append(_flat(met, shape[2:]))
        parts.append(g if weight is None else g * OPS["Unsqueeze"](weight, axes_tensor([1])))
    place, part = OPS["Concat"](*places, axis=1), OPS["Concat"](*parts, axis=2)
    count = place.shape[1]
    place = expand_to(OPS["Unsqueeze"](place, axes_tensor([1])), [N, C, count])
    flat = OPS["ScatterElements"](
        zeros([N * C, product_of(shape[2:])], g),
        reshape_to(place, [N * C, count]),
        reshape_to(part, [N * C, count]),
        axis=1,
        reduction="add",
    )
    return reshape_to(flat, shape)


def grid_gradient(g: TensorBase, X: TensorBase, axes: Sequence[Axis], shape: Sequence[int]) -> TensorBase:
    """The same for the grid, whose shape is given."""
    parts = [OPS["Unsqueeze"](pull, axes_tensor([2])) for pull in reversed(pulls(g, X, axes))]
    return reshape_to(OPS["Concat"](*parts, axis=2), shape)


def pulls(g: TensorBase, X: TensorBase, axes: Sequence[Axis]) -> list[TensorBase]:
    """The same for the coordinates [N, P] of each axis."""
    sizes, rank = X.shape[2:], len(axes)
    images = reshape_to(X, [*X.shape[:2], product_of(sizes)])
    g = reshape_to(g, [*X.shape[:2], product_of(g.shape[2:])])
    totals: list[Any] = [None] * rank
    for met in _combined(axes):
        value = OPS["ReduceSum"](g * _gather_pixels(images, _flat(met, sizes)), axes_tensor([1]), keepdims=0)
        for i in range(rank):
            part = value * _weight(met, i)
            totals[i] = part if totals[i] is None else totals[i] + part
    return [total * axis.growth for total, axis in zip(totals, axes, strict=True)]
