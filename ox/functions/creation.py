"""Tensors from Python values: `tensor`, `from_numpy`, `zeros`, `arange`, ..."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.core import operator
from ox.core.constants import axes_tensor, is_made_on_gpu, scalar, stored
from ox.core.mode import MODE
from ox.core.operator import OPS
from ox.core.promotion import cast, no_such_type
from ox.core.symbolic import COMPUTED, Dim, contains_sizes, size_tensor
from ox.core.tensor import is_tensor
from ox.devices import cuda
from ox.dtypes import ALL, NARROW, DType, float64, get_default_dtype, int64, is_floating
from ox.errors import ArgumentError, CallError, DeviceError, DTypeError, ShapeError
from ox.functions.dimension_arguments import sizes_of
from ox.functions.keyword_arguments import factory, factory_without_out
from ox.functions.python_values import check_range, from_python
from ox.functions.shapes import reshape

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor


def as_array(data: Any, dtype: DType | None) -> Any:
    """An array that shares memory where it can; Python floats take the default type.

    Raises:
        DTypeError: no numbers, or of an element type that ox does not have.
        ShapeError: rows of different lengths.
        RecordError: tensors of a recording, whose values it does not have.
    """
    if MODE.get().recording is not None:
        for each in _tensors_in(data):
            each._refuse_under_recording("a tensor made of tensors")
    return _as_array(data, dtype)


def _tensors_in(data: Any) -> Iterator[Any]:
    """The tensors in lists of lists."""
    if is_tensor(data):
        yield data
    elif isinstance(data, (list, tuple)):
        for each in data:
            yield from _tensors_in(each)


def _as_array(data: Any, dtype: DType | None) -> Any:
    is_python = not is_tensor(data) and not isinstance(data, np.ndarray)  # numbers, or lists of them
    if is_tensor(data):
        data = data.array
    elif type(data) is not np.ndarray and not hasattr(data, "__cuda_array_interface__"):
        plain = not hasattr(data, "__array__")
        data = from_python(data, None if dtype is None else _element_type(dtype)) if plain else np.asarray(data)
        if plain and dtype is None and data.dtype == np.float64:
            dtype = get_default_dtype()
    if data.dtype not in _OX_TYPES:
        native = data.dtype.newbyteorder("=") if data.dtype.kind in "fiu" else None
        if native not in _OX_TYPES:
            raise DTypeError(
                "these values do not make a tensor",
                expected="numbers or bools, in rows of one length",
                got=f"the element type {data.dtype}",
            )
        data = data.astype(native)
    if dtype is None or data.dtype == dtype:
        return data
    wanted = _element_type(dtype)
    if is_python:
        check_range(data, wanted)
    with np.errstate(all="ignore"):  # what is too large for a float is infinite
        return data.astype(wanted)


_OX_TYPES = frozenset((*ALL, *NARROW))


def _element_type(dtype: Any) -> DType:
    """`dtype` as one of ox's. Raises DTypeError for another."""
    try:
        wanted: DType = np.dtype(dtype)
    except TypeError:
        raise no_such_type(dtype) from None
    if wanted not in _OX_TYPES:
        raise no_such_type(dtype)
    return wanted


def _finish(array: Any, device: str | None, requires_grad: bool) -> Tensor:
    t: Any = operator.make_tensor(array)
    if device not in (None, "cpu") and isinstance(array, np.ndarray):
        t = t.to(device)
    t.requires_grad = requires_grad
    return t


def _of_sizes(data: Any, dtype: DType | None, device: str | None, requires_grad: bool) -> Tensor:
    """A number, or lists of them, of which some are sizes of a recording: in operators."""
    plain = _as_array(data, dtype)
    leaves = [data]
    while isinstance(leaves[0], (list, tuple)):
        leaves = [leaf for each in leaves for leaf in each]
    if all(isinstance(leaf, int) for leaf in leaves):
        flat = cast(size_tensor(leaves), plain.dtype)
    else:
        flat = OPS["Concat"](*(reshape(scalar(leaf, plain.dtype), 1) for leaf in leaves), axis=0)
    return reshape(flat, plain.shape).to(device or "cpu").requires_grad_(requires_grad)


def _of_tensors(data: Any, dtype: DType | None, device: str | None) -> Tensor:
    """A tensor, or lists of tensors and numbers: in operators, without the history."""
    wanted = _as_array(data, dtype).dtype

    def made(part: Any) -> Any:
        if is_tensor(part):
            return cast(part.detach(), wanted)
        if not isinstance(part, (list, tuple)):
            return scalar(part, wanted)
        return OPS["Concat"](*[OPS["Unsqueeze"](made(each), axes_tensor([0])) for each in part], axis=0)

    first: Any = next(_tensors_in(data))
    result: Tensor = made(data).to(device or (first.device if is_tensor(data) else "cpu"))
    return result


@factory_without_out
def tensor(data: Any, *, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """A copy of `data` as a tensor. `torch.tensor`."""
    if MODE.get().recording is not None:
        if contains_sizes(data):
            return _of_sizes(data, dtype, device, requires_grad)
        if next(_tensors_in(data), None) is not None:
            return _of_tensors(data, dtype, device).clone().requires_grad_(requires_grad)
    return _finish(as_array(data, dtype).copy(), device, requires_grad)


def as_tensor(data: Any, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """`data` itself if it is such a tensor, else a tensor that shares memory where it can. `torch.as_tensor`."""
    if is_tensor(data) and (dtype is None or data.dtype == dtype) and device in (None, data.device):
        return data
    if MODE.get().recording is not None and next(_tensors_in(data), None) is not None:
        return _of_tensors(data, dtype, device)
    if MODE.get().recording is not None and contains_sizes(data):
        return _of_sizes(data, dtype, device, False)
    return _finish(as_array(data, dtype), device, False)


def frombuffer(buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A tensor over the memory of an object with the buffer protocol (bytes, bytearray, mmap). `torch.frombuffer`.

    Args:
        count: elements; -1 takes all to the end.
        offset: bytes to pass over.

    Raises:
        ArgumentError: a buffer that does not hold so many whole elements.
    """
    try:
        array = np.frombuffer(buffer, dtype, count, offset)
    except (TypeError, ValueError) as error:
        raise ArgumentError("no tensor over this buffer", got=str(error)) from error
    return _finish(array, None, requires_grad)


def from_numpy(ndarray: np.ndarray[Any, Any]) -> Tensor:
    """A tensor over the same memory. `torch.from_numpy`.

    Raises:
        DTypeError: no NumPy array, or of an element type or byte order that ox does not have.
    """
    if not isinstance(ndarray, np.ndarray):
        raise DTypeError("from_numpy takes a NumPy array", got=type(ndarray).__name__, hint="ox.tensor(data)")
    if ndarray.dtype not in _OX_TYPES:
        raise DTypeError(
            "from_numpy cannot share this array",
            got=f"the element type {ndarray.dtype}",
            hint="ox.tensor(array), which copies, where the values are numbers",
        )
    return _finish(ndarray, None, False)


@factory
def full(
    size: Any,
    fill_value: Any,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A shape full of one number, whose type is taken where `dtype` is None. `torch.full`."""
    return _full((size,), fill_value, dtype, device, requires_grad)


def _full(shape: Sequence[Any], value: Any, dtype: DType | None, device: str | None, requires_grad: bool) -> Tensor:
    sizes = sizes_of(tuple(shape))
    if any(s < 0 for s in sizes):
        raise ShapeError("a tensor has no negative sizes", got=str(sizes))
    dtype = as_array(value, None).dtype if dtype is None else _element_type(dtype)
    if isinstance(value, COMPUTED):
        return OPS["Expand"](scalar(value, dtype), size_tensor(sizes)).requires_grad_(requires_grad)
    number = as_array(value, dtype) if hasattr(value, "dtype") else stored(value, dtype, infinite_halves=True).array
    if any(isinstance(s, Dim) for s in sizes):
        return OPS["ConstantOfShape"](size_tensor(sizes), value=number.reshape(1))
    if dtype not in NARROW and is_made_on_gpu(device):
        return _finish(cuda.full(tuple(sizes), number[()], dtype, str(device)), device, requires_grad)
    try:
        array = np.zeros(sizes, dtype) if value == 0 else np.full(sizes, number, dtype)  # zeros: untouched pages
    except (MemoryError, OverflowError, ValueError) as error:
        raise DeviceError("there is no memory for this tensor", got=f"{dtype} {list(sizes)}: {error}") from None
    return _finish(array, device, requires_grad)


@factory
def zeros(*size: Any, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """``zeros(2, 3)`` or ``zeros((2, 3))``. `torch.zeros`."""
    return _full(size, 0, dtype or get_default_dtype(), device, requires_grad)


@factory
def ones(*size: Any, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """``ones(2, 3)`` or ``ones((2, 3))``. `torch.ones`."""
    return _full(size, 1, dtype or get_default_dtype(), device, requires_grad)


@factory
def empty(*size: Any, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """A shape whose values are not to be relied on (they are zeros). `torch.empty`."""
    return zeros(*size, dtype=dtype, device=device, requires_grad=requires_grad)


@factory
def arange(
    start: Any = None,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Evenly spaced values in [start, end); integers unless one is a float. `torch.arange`, ONNX Range.

    Raises:
        ArgumentError: a step of 0, or one that leads away from the end.
    """
    if end is None:
        start, end = None, start
    if end is None:
        raise CallError("arange needs an end", expected="arange(end) or arange(start, end)")
    start, end, step = (_number(0 if x is None else x, "arange") for x in (start, end, step))
    if step == 0 or (end > start if step < 0 else end < start) or not all(map(isfinite, (start, end, step))):
        raise ArgumentError("arange cannot reach its end", got=f"from {start} to {end} in steps of {step}")
    if dtype is None:
        dtype = int64 if all(isinstance(v, (int, np.integer)) for v in (start, end, step)) else get_default_dtype()
    dtype = _element_type(dtype)
    if any(isinstance(v, Dim) for v in (start, end, step)):
        if step > 0 and not isinstance(start, Dim) and start >= 0:
            return OPS["Range"](*(scalar(v, dtype) for v in (start, end, step)))
        # counted from 0 and moved: ONNX Runtime makes a Slice of Gather over a Range, to which negative ends are others
        span, move = (end - start, OPS["Add"]) if step > 0 else (start - end, OPS["Sub"])
        return move(
            scalar(start, dtype), OPS["Range"](*(scalar(v, dtype) for v in (0, span, step if step > 0 else -step)))
        )
    if dtype.kind in "iu":  # PyTorch drops the fractions first; of types but int64 after it has counted
        count = None if dtype == int64 else len(np.arange(start, end, step))
        start, end, step = (int(v) for v in (start, end, step))
        if is_made_on_gpu(device):
            several = len(range(start, end, step)) if count is None else count
            return _finish(cuda.arange(start, step, several, dtype, str(device)), device, requires_grad)
        values = np.arange(start, end, step) if count is None else start + step * np.arange(count)
        return _finish(values.astype(dtype), device, requires_grad)
    return _finish(np.arange(start, end, step).astype(dtype), device, requires_grad)


def _number(value: Any, name: str) -> Any:
    """A number from a number or from a tensor of no dimensions; an `ox.Dim` stays one."""
    if not is_tensor(value):
        return value
    if value.array.ndim:
        raise ShapeError(
            f"{name} takes numbers, or tensors of no dimensions", got=f"a tensor of shape {list(value.static_shape)}"
        )
    return value.item()


@factory
def linspace(
    start: Any,
    end: Any,
    steps: int,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`steps` values from start to end, both included. `torch.linspace`. Raises ArgumentError for negative `steps`."""
    if steps < 0:
        raise ArgumentError("linspace needs 0 steps or more", got=str(steps))
    start, end = _number(start, "linspace"), _number(end, "linspace")
    dtype = get_default_dtype() if dtype is None else _element_type(dtype)
    if is_floating(dtype) and any(isinstance(v, Dim) for v in (start, end, steps)):
        return cast(_between_sizes(start, end, steps), dtype)
    return _finish(_between(start, end, steps, dtype).astype(dtype), device, requires_grad)


def _between(start: Any, end: Any, steps: int, dtype: DType) -> Any:
    """Evenly spaced numbers in float64; of whole numbers from both ends to the middle, as in PyTorch, for their
    fractions will be dropped."""
    if is_floating(dtype) or steps < 2:
        return np.linspace(start, end, steps)
    first, last, places = int(start), int(end), np.arange(steps)
    step = (last - first) / (steps - 1)
    return np.where(places < steps // 2, first + step * places, last - step * (steps - 1 - places))


def _between_sizes(start: Any, end: Any, steps: Any) -> Any:
    """The same in operators, for numbers of which some are sizes of a recording: float64."""
    gaps = OPS["Max"](scalar(steps - 1, float64), scalar(1, float64))
    first, last = scalar(start, float64), scalar(end, float64)
    return first + cast(arange(steps), float64) * ((last - first) / gaps)


@factory
def logspace(
    start: Any,
    end: Any,
    steps: int,
    base: float = 10.0,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`steps` powers of `base`, with evenly spaced exponents from start to end. `torch.logspace`.

    Raises:
        ArgumentError: negative `steps`.
    """
    if steps < 0:
        raise ArgumentError("logspace needs 0 steps or more", got=str(steps))
    start, end = _number(start, "logspace"), _number(end, "logspace")
    dtype = get_default_dtype() if dtype is None else _element_type(dtype)
    if is_floating(dtype) and any(isinstance(v, Dim) for v in (start, end, steps)):
        return cast(OPS["Pow"](scalar(base, float64), _between_sizes(start, end, steps)), dtype)
    exponents = _between(start, end, steps, dtype)
    return _finish(np.power(float(base), exponents).astype(dtype), device, requires_grad)


@factory_without_out
def scalar_tensor(
    s: Any, *, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """A number as a tensor of no dimensions, by default of the default float type. `torch.scalar_tensor`."""
    return tensor(s, dtype=dtype or get_default_dtype(), device=device, requires_grad=requires_grad)


def asarray(
    obj: Any,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """`obj` as a tensor: with its memory where it can (`copy=False` insists), or a copy. `torch.asarray`.

    Raises:
        ArgumentError: a copy that `copy=False` forbids.
    """
    made = tensor(obj, dtype=dtype, device=device) if copy else as_tensor(obj, dtype=dtype, device=device)
    if copy is False and not np.shares_memory(made.array, obj.array if is_tensor(obj) else obj):
        raise ArgumentError("asarray cannot share this memory", hint="copy=None")
    return made.requires_grad_() if requires_grad else made


@factory
def eye(
    n: int, m: int | None = None, *, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """The identity matrix, n × n or n × m. `torch.eye`. Raises ArgumentError for negative sizes."""
    if min(n, n if m is None else m) < 0:
        raise ArgumentError("eye needs sizes of 0 or more", got=f"{n}, {m}")
    dtype = get_default_dtype() if dtype is None else _element_type(dtype)
    if isinstance(n, Dim) or isinstance(m, Dim):
        return cast(OPS["EyeLike"](zeros(n, n if m is None else m)), dtype)
    return _finish(np.eye(n, m, dtype=dtype), device, requires_grad)
