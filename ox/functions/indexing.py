"""``x[...]`` as operators: Slice, Squeeze, Unsqueeze, Gather."""

from __future__ import annotations

import operator as python
from typing import TYPE_CHECKING, Any

import numpy as np

from ox import ops
from ox.core import operator
from ox.core.constants import axes_tensor
from ox.core.mode import MODE
from ox.core.promotion import cast
from ox.core.symbolic import Dim, size_tensor
from ox.core.tensor import is_tensor
from ox.devices import cuda_state
from ox.dtypes import bool_, int32, int64, uint8
from ox.errors import BoundsError, ShapeError
from ox.functions.like_creation import to_device
from ox.functions.operand_arguments import like
from ox.functions.shapes import reshape
from ox.ops.index.gather import product_of
from ox.ops.index.in_range import check_in_later_runs

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

_END = np.iinfo(np.int64).max
_KINDS = "int, slice, None, ..., list, array or tensor of integers or booleans"


def get(x: Tensor, index: Any) -> Tensor:
    """The part of `x` that `index` names, with PyTorch's rules: integers are taken first, so beside several index
    tensors they do not count as NumPy's do.

    Raises:
        BoundsError: an integer outside its dimension, too many indices, or an index of another kind.
    """
    index = _as_tuple(index)
    if len(index) == 1 and (single := _truth(index[0])) is not None:
        return ops.Compress(ops.Unsqueeze(x, axes_tensor([0])), reshape(_beside(single, x), 1), axis=0)
    if (own_axis := single_bool(x, index)) is not None:
        return get(*own_axis)
    parts = as_parts(x, index, whole=True)
    if len(parts) == 1 and is_mask(parts[0]):
        return _masked(x, parts[0])
    x = _basic(x, parts)
    arrays = index_arrays(parts)
    for d, single in reversed(arrays):
        if not single.array.ndim:  # recorded, else it were an int
            x = ops.Gather(x, single, axis=d)
    gone = [d for d, single in arrays if not single.array.ndim]
    arrays = [(d - sum(g < d for g in gone), a) for d, a in arrays if a.array.ndim]
    return _advanced(x, arrays) if arrays else x


def _as_tuple(index: Any) -> tuple[Any, ...]:
    """What stands between commas. A short list with a sequence, tensor or slice in it stands for a tuple, as in
    PyTorch (and in NumPy until 1.23)."""
    if isinstance(index, tuple):
        return index
    if isinstance(index, list) and len(index) < 32 and any(_is_several(part) for part in index):
        return tuple(index)
    return (index,)


def _is_several(part: Any) -> bool:
    return part is None or part is Ellipsis or isinstance(part, (slice, list, tuple, range)) or is_tensor(part)


def _truth(part: Any) -> Any:
    """A single False, or a bool tensor of no dimensions, as a tensor: it takes all of `x`, or nothing."""
    if part is False or isinstance(part, np.bool_):
        return operator.as_input(np.asarray(part))
    return part if is_mask(part) and not part.array.ndim else None


def single_bool(x: Tensor, index: Any) -> tuple[Tensor, tuple[Any, ...]] | None:
    """Where a single bool stands among other indices: `x` with a new dimension there, of which the bool is the mask."""
    index = _as_tuple(index)
    at = next((i for i, part in enumerate(index) if _truth(part) is not None), None)
    if at is None or len(index) == 1:
        return None
    counted_from_end = any(part is Ellipsis for part in index[:at])
    used = sum(_used(part) for part in (index[at + 1 :] if counted_from_end else index[:at]))
    d = x.array.ndim - used if counted_from_end else used
    if not 0 <= d <= x.array.ndim:
        raise BoundsError(f"too many indices for a tensor of {x.array.ndim} dimensions", got=str(list(x.static_shape)))
    return ops.Unsqueeze(x, axes_tensor([d])), (*index[:at], reshape(_truth(index[at]), 1), *index[at + 1 :])


def _used(part: Any) -> int:
    """The number of dimensions that an entry takes away from those that follow."""
    if part is None or part is Ellipsis or part is True or _truth(part) is not None:
        return 0
    return _width(_part(part))


def index_arrays(parts: list[Any]) -> list[tuple[int, Any]]:
    """The index tensors, with their dimensions of what is left when the plain integers are taken."""
    left = [p for p in parts if not isinstance(p, int)]
    return [(d, p) for d, p in enumerate(left) if is_tensor(p)]


def as_parts(x: Tensor, index: Any, whole: bool = False) -> list[Any]:
    """What stands in the brackets, one entry a dimension (and None for new ones): an int, a slice, or an integer
    tensor, for lists and masks too; with `whole` a single mask stays one."""
    shape = x.static_shape
    parts = [_part(p) for p in _as_tuple(index)]
    if whole and len(parts) == 1 and is_mask(parts[0]) and _width(parts[0]) <= len(shape):
        _check_mask(parts[0], shape, 0)
        return parts
    used = sum(0 if p is None or p is Ellipsis else _width(p) for p in parts)
    if used > len(shape):
        raise BoundsError(f"{used} indices for a tensor of {len(shape)} dimensions", got=str(list(shape)))
    places = [i for i, p in enumerate(parts) if p is Ellipsis]
    if len(places) > 1:
        raise BoundsError("an index has one ... at most")
    fill = [slice(None)] * (len(shape) - used)
    parts = [*parts, *fill] if not places else [*parts[: places[0]], *fill, *parts[places[0] + 1 :]]
    result: list[Any] = []
    d = 0
    for part in parts:
        if is_mask(part):
            result.extend(_places(part, shape, d))
        else:
            result.append(part)
        d += 0 if part is None else _width(part)
    return result


def is_mask(part: Any) -> bool:
    return is_tensor(part) and part.array.dtype == bool_


def _width(part: Any) -> int:
    """The number of dimensions that an entry indexes."""
    return part.array.ndim if is_mask(part) else 1


def _part(part: Any) -> Any:
    """One entry of an index: None, Ellipsis, an int (or `ox.Dim`), a slice, or a tensor of integers or booleans."""
    if part is None or part is Ellipsis or part is True:
        return None if part is True else part
    if isinstance(part, slice):
        return _slice(part)
    if isinstance(part, (list, tuple, range, np.ndarray)):
        part = _array(part)
    if not is_tensor(part):
        if isinstance(part, (bool, np.bool_)):
            raise BoundsError("a single bool is no index", hint="x[None], or a mask of x's shape")
        return _as_integer(part, f"indexed by {type(part).__name__}")
    dtype = part.array.dtype
    if dtype == uint8 and part.array.ndim:  # a mask from before there were bools
        return cast(part, bool_)
    if dtype == bool_ and part.array.ndim:
        return part
    if dtype.kind not in "iu":
        raise BoundsError(f"a tensor of {dtype} {list(part.static_shape)} is no index", expected=_KINDS)
    if part.array.ndim == 0 and part._recorded is None:
        return int(part.array)
    return part if dtype in (int32, int64) else cast(part, int64)


def _as_integer(value: Any, what: str) -> int:
    """An int, or an `ox.Dim` as it is."""
    if isinstance(value, Dim):
        return value
    try:
        return python.index(value)
    except TypeError:
        raise BoundsError(f"a tensor cannot be {what}", expected=_KINDS) from None


def _slice(part: slice) -> slice:
    start, stop, step = (
        None if v is None else _as_integer(v, f"sliced by {type(v).__name__}")
        for v in (part.start, part.stop, part.step)
    )
    if step is not None and step <= 0:
        raise BoundsError(
            "a slice of a tensor needs a step above 0", got=f"step {step}", hint="x.flip(dim) for backwards"
        )
    return slice(start, stop, step)


def _array(part: Any) -> Any:
    """A list or array as an index tensor."""
    try:
        array = part if isinstance(part, np.ndarray) else np.asarray([_as_array(p) for p in part])
    except ValueError:
        array = np.empty(0, object)
    if not isinstance(part, np.ndarray) and not array.size and array.dtype == np.float64:
        array = array.astype(np.int64)  # an empty list is of no kind
    if array.dtype.kind not in "iub":
        raise BoundsError("a list or array that is no index", expected=_KINDS, got=str(array.dtype))
    return operator.as_input(array)


def _as_array(part: Any) -> Any:
    return part.array if is_tensor(part) else part


def _beside(index: Any, x: Tensor) -> Any:
    """An index, which may be the host's, on the device of x."""
    return index if index.device == x.device else to_device(index, x.device)


def _masked(x: Tensor, mask: Tensor) -> Tensor:
    """The elements where a mask of the first dimensions is true."""
    mask, rank = _beside(mask, x), mask.array.ndim
    if rank < x.array.ndim:
        shape = x.shape
        x = x if rank == 1 else reshape(x, [product_of(shape[:rank]), *shape[rank:]])
        return ops.Compress(x, reshape(mask, -1), axis=0)
    return ops.Compress(x, reshape(mask, -1))


def _places(mask: Any, shape: tuple[int, ...], d: int) -> list[Any]:
    """A mask as integer tensors: the places where it is true, one tensor a dimension of the mask."""
    _check_mask(mask, shape, d)
    if MODE.get().recording is None:
        with cuda_state.at(mask.array):
            return [operator.as_input(a) for a in mask.array.nonzero()]
    rank = mask.array.ndim
    rows = ops.Split(ops.NonZero(mask), axis=0, num_outputs=rank, outputs=rank)
    return [ops.Squeeze(row, axes_tensor([0])) for row in rows]


def _check_mask(mask: Any, shape: tuple[int, ...], d: int) -> None:
    if mask.static_shape != shape[d : d + mask.array.ndim]:
        raise BoundsError(
            f"a mask does not have the sizes of what it masks, from dimension {d} on",
            expected=str(list(shape[d : d + mask.array.ndim])),
            got=str(list(mask.static_shape)),
        )


def check_inside(place: int, d: int, size: int) -> None:
    if not -size <= place < size:
        raise BoundsError(
            f"index {int(place)} is outside dimension {d}",
            expected=f"{-size} to {size - 1}" if size else "no index, for it has no elements",
        )


def _basic(x: Tensor, parts: list[Any]) -> Tensor:
    """Apply the integers, slices and new dimensions: at most one Slice, one Squeeze, one Unsqueeze."""
    starts, ends, axes, steps, dropped, added = [], [], [], [], [], []
    d = out = 0
    for part in parts:
        if part is None:
            added.append(out)
            out += 1
            continue
        if isinstance(part, int):
            check_inside(part, d, x.static_shape[d])
            starts.append(part)
            ends.append(_END if part == -1 else part + 1)
            axes.append(d)
            steps.append(1)
            dropped.append(d)
        else:
            if isinstance(part, slice) and part != slice(None):
                starts.append(0 if part.start is None else part.start)
                ends.append(_END if part.stop is None else part.stop)
                axes.append(d)
                steps.append(1 if part.step is None else part.step)
            out += 1
        d += 1
    if axes:
        x = ops.Slice(x, size_tensor(starts), size_tensor(ends), axes_tensor(axes), size_tensor(steps))
    if dropped:
        x = ops.Squeeze(x, axes_tensor(dropped))
    return ops.Unsqueeze(x, axes_tensor(added)) if added else x


def _advanced(x: Tensor, arrays: list[tuple[int, Any]]) -> Tensor:
    """Integer tensors: one is a Gather; several adjoining ones index the merged dimension."""
    first, indices = arrays[0][0], [_beside(a, x) for _, a in arrays]
    if len(arrays) == 1:
        check_bounds(indices[0], x.static_shape[first], f"the index of dimension {first}")
        return ops.Gather(x, indices[0], axis=first)
    dims = [d for d, _ in arrays]
    rank = x.array.ndim
    if dims != list(range(first, first + len(dims))):
        # not adjoining: their dimensions come first, as in NumPy
        rest = [d for d in range(rank) if d not in dims]
        x, first = ops.Transpose(x, perm=[*dims, *rest]), 0
    check_index_shapes(indices)
    shape = x.shape
    flat: Any = None
    for size, i in zip(shape[first:], indices, strict=False):
        check_bounds(i, int(size), "an index tensor")
        i = cast(check_in_later_runs(i, -int(size), int(size) - 1, "an index tensor points outside"), int64)
        if i._recorded is not None or not isinstance(i.array, np.ndarray) or (i.array < 0).any():
            i = ops.Where(ops.Less(i, like(0, i)), i + size, i)  # negative counts from the end
        flat = i if flat is None else flat * size + i
    merged = reshape(x, [*shape[:first], -1, *shape[first + len(dims) :]])
    return ops.Gather(merged, flat, axis=first)


def check_index_shapes(indices: list[Any]) -> None:
    """Raise ShapeError if index tensors do not broadcast together."""
    try:
        np.broadcast_shapes(*(a.static_shape for a in indices))
    except ValueError:
        raise ShapeError(
            "index tensors do not broadcast together", got=", ".join(str(list(a.static_shape)) for a in indices)
        ) from None


def check_bounds(index: Any, size: int, what: str) -> None:
    """Raise BoundsError if an entry is outside; on a GPU looking would wait for it."""
    array = index.array
    if isinstance(array, np.ndarray) and array.size:
        low, high = int(array.min()), int(array.max())
        if low < -size or high >= size:
            raise BoundsError(
                f"{what} points outside", expected=f"{-size} to {size - 1}", got=str(low if low < -size else high)
            )
