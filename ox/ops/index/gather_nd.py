"""Picking and placing by several coordinates at once: GatherND ScatterND TensorScatter Scatter."""

from typing import Any

from ox.core.broadcast import expand_to, reshape_to
from ox.core.constants import axes_tensor, positions, zeros
from ox.core.operator import OPS, Operator, operator
from ox.core.symbolic import size_tensor
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import XP, Int64, T, Tind
from ox.dtypes import ALL, HALF_TYPES, bfloat16, float32, int64
from ox.errors import ArgumentError, ShapeError
from ox.ops.index.gather import (
    INDEX,
    UFUNCS,
    GatherElements,
    ScatterElements,
    add_along,
    product_of,
    reduced_shares,
    update_at,
)

__all__ = ["GatherND", "Scatter", "ScatterND", "TensorScatter"]


@operator("output", kind="selection", T=ALL, amp="widest", batching="each")
def GatherND(xp: XP, data: T, indices: Int64, *, batch_dims: int = 0) -> T:
    """For each row of `indices` [..., q] the part of `data` at these q coordinates; the first `batch_dims` dimensions
    are common to both. ONNX GatherND."""
    q, b = indices.shape[-1] if indices.ndim else 0, batch_dims
    if not q or b + q > data.ndim or data.shape[:b] != indices.shape[:b]:
        raise ShapeError(
            f"GatherND cannot address {list(data.shape)} by {list(indices.shape)} with {b} common dimensions",
            expected=f"indices of {b} equal dimensions and at most {data.ndim - b} coordinates",
        )
    rank = indices.ndim - 1
    common = [xp.arange(n).reshape([-1 if i == d else 1 for i in range(rank)]) for d, n in enumerate(data.shape[:b])]
    return data[(*common, *xp.moveaxis(indices, -1, 0))]


@GatherND.gradient("data")
def _(g: TensorBase, data_shape: tuple[int, ...], indices: TensorBase, batch_dims: int) -> TensorBase:
    q = int(indices.static_shape[-1])
    places = flat_places(indices, data_shape, batch_dims)
    inner = data_shape[batch_dims + q :]
    rows = product_of(data_shape[: batch_dims + q])
    width = [product_of(inner)] if inner else []
    return reshape_to(add_along(reshape_to(g, [places.shape[0], *width]), places, 0, rows), data_shape)


def flat_places(indices: TensorType, shape: tuple[int, ...], batch_dims: int = 0) -> TensorType:
    """The rows that `indices` [..., q] name, when the leading dimensions of `shape` are one: int64 [how many]."""
    q, b = int(indices.static_shape[-1]), batch_dims
    sizes = shape[b : b + q]
    steps = [product_of(sizes[i + 1 :]) for i in range(q)]
    own = size_tensor(sizes)
    indices = OPS["Where"](OPS["Less"](indices, axes_tensor([0])), OPS["Add"](indices, own), indices)
    flat = OPS["ReduceSum"](OPS["Mul"](indices, size_tensor(steps)), axes_tensor([-1]), keepdims=0)
    if not b:
        return reshape_to(flat, [product_of(indices.shape[:-1])])
    count = product_of(shape[:b])
    each = product_of(indices.shape[b:-1])
    first = OPS["Mul"](positions(count), size_tensor([product_of(sizes)]))
    flat = OPS["Add"](reshape_to(flat, [count, each]), OPS["Unsqueeze"](first, axes_tensor([1])))
    return reshape_to(flat, [count * each])


@operator("output", kind="scatter", T=ALL, amp="widest", batching="each")
def ScatterND(xp: XP, data: T, indices: Int64, updates: T, *, reduction: str = "none") -> T:
    """A copy of `data` in which each part of `updates` is put, added, multiplied, ... at the coordinates in a row of
    `indices` [..., q]. Without a reduction rows must not repeat. ONNX ScatterND."""
    q = indices.shape[-1] if indices.ndim else 0
    if q > data.ndim or updates.shape != (*indices.shape[:-1], *data.shape[q:]):
        raise ShapeError(
            f"ScatterND cannot put {list(updates.shape)} into {list(data.shape)} by {list(indices.shape)}",
            expected=f"updates {[*indices.shape[:-1], *data.shape[q:]]}",
        )
    places = tuple(xp.moveaxis(indices, -1, 0))
    if reduction == "none":
        out = data.copy()
        out[places] = updates
        return out
    if reduction not in UFUNCS:
        raise ArgumentError(f"ScatterND has no reduction {reduction!r}", expected="none, add, mul, max or min")
    out = data.astype(float32) if data.dtype in HALF_TYPES else data.copy()
    update_at(xp, reduction, out, places, updates.astype(out.dtype, copy=False))
    return out.astype(data.dtype, copy=False)


@ScatterND.gradient("data", "updates", when=lambda attributes: attributes["reduction"] in ("none", "add"))
def _(
    g: TensorBase, indices: TensorBase, updates_shape: tuple[int, ...], reduction: str, needs: tuple[bool, bool]
) -> tuple[TensorBase | None, TensorBase | None]:
    to_updates = GatherND(g, indices) if needs[1] else None
    if reduction == "add" or not needs[0]:
        return g, to_updates
    return ScatterND(g, indices, zeros(updates_shape, g)), to_updates


@ScatterND.gradient("data", "updates", when=lambda attributes: attributes["reduction"] not in ("none", "add"))
def _(
    g: TensorBase, data: TensorBase, indices: TensorBase, updates: TensorBase, output: TensorBase, reduction: str
) -> tuple[TensorBase, TensorBase]:
    # as whole rows of a matrix, by ScatterElements: ONNX Runtime's ScatterND races where it reduces
    shape, updates_shape = data.shape, updates.shape
    q = int(indices.static_shape[-1])
    width = product_of(shape[q:])
    places = flat_places(indices, shape)
    matrix = [product_of(shape[:q]), width]
    grid = expand_to(OPS["Unsqueeze"](places, axes_tensor([1])), [places.shape[0], width])
    to_data, to_updates = reduced_shares(
        reshape_to(g, matrix), reshape_to(data, matrix), grid, reshape_to(updates, [places.shape[0], width]),
        reshape_to(output, matrix), 0, reduction,
    )  # fmt: skip
    return reshape_to(to_data, shape), reshape_to(to_updates, updates_shape)


@operator("present_cache", kind="scatter", T=ALL, amp="widest", batching="each")
def TensorScatter(
    xp: XP, past_cache: T, update: T, write_indices: Int64 = None, *, axis: int = -2, mode: str = "linear"
) -> T:
    """A copy of a cache [batch, ..., length, ...] with `update` written along `axis`, from the place on that
    `write_indices` [batch] names, by default 0; "circular" goes on at the beginning. ONNX TensorScatter."""
    axis %= past_cache.ndim
    length, count = past_cache.shape[axis], update.shape[axis]
    expected = [*past_cache.shape[:axis], count, *past_cache.shape[axis + 1 :]]
    if list(update.shape) != expected or count > length or axis == 0:
        raise ShapeError(
            f"TensorScatter cannot write {list(update.shape)} into {list(past_cache.shape)} along axis {axis}",
            expected=f"{expected}, at most {length} along an axis that is not the first",
        )
    if mode not in ("linear", "circular"):
        raise ArgumentError(f"TensorScatter has no mode {mode!r}", expected="linear or circular")
    batch = past_cache.shape[0]
    starts = xp.zeros(batch, int64) if write_indices is None else write_indices
    places = starts[:, None] + xp.arange(count)
    if mode == "circular":
        places = places % length
    out = past_cache.copy()
    xp.moveaxis(out, axis, 1)[xp.arange(batch)[:, None], places] = xp.moveaxis(update, axis, 1)
    return out


@TensorScatter.gradient("past_cache", "update")
def _(
    g: TensorBase, update_shape: tuple[int, ...], write_indices: TensorBase | None, axis: int, mode: str,
    needs: tuple[bool, bool],
) -> tuple[TensorBase | None, TensorBase | None]:  # fmt: skip
    to_cache = TensorScatter(g, zeros(update_shape, g), write_indices, axis=axis, mode=mode) if needs[0] else None
    if not needs[1]:
        return to_cache, None
    rank = len(update_shape)
    axis %= rank
    places: Any = reshape_to(positions(update_shape[axis]), _only(rank, {axis: update_shape[axis]}))
    if write_indices is not None:
        places = OPS["Add"](places, reshape_to(write_indices, _only(rank, {0: update_shape[0]})))
    if mode == "circular":
        places = OPS["Mod"](places, size_tensor([g.shape[axis]]))
    return to_cache, GatherElements(g, expand_to(places, update_shape), axis=axis)


def _only(rank: int, sizes: dict[int, int]) -> list[int]:
    return [sizes.get(i, 1) for i in range(rank)]


class _Renamed(Operator):
    """An operator that ONNX renamed: the old name is a call of the new one, and so is what it records."""

    kind = "scatter"
    amp = "keep"  # the policy applies to the newer operator
    batching = "each"  # no recording holds it

    def __call__(self, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        return ScatterElements(*inputs, outputs=outputs, **attributes)


def _scatter(xp: XP, data: T, indices: Tind, updates: T, *, axis: int = 0) -> T:
    """The name that ScatterElements had before opset 11. ONNX Scatter."""
    return ScatterElements.kernel(xp, data, indices, updates, axis=axis)


_scatter.__name__ = "Scatter"
Scatter = OPS["Scatter"] = _Renamed(
    _scatter, "output", {"T": tuple(t for t in ALL if t != bfloat16), "Tind": INDEX}, False
)
Scatter.rules = [rule for rule in ScatterElements.rules if rule.when is not None and rule.when({"reduction": "none"})]
