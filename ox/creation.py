"""Tensors from Python values: `tensor`, `from_numpy`, `zeros`, `arange`, ..."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.dtypes import DType, get_default_dtype, int64
from ox.errors import DTypeError

if TYPE_CHECKING:
    from ox.tensor import Tensor


def as_array(data: Any, dtype: DType | None) -> Any:
    """An array that shares memory where it can; Python floats take the default type."""
    if hasattr(data, "node"):
        data = data.data
    if not hasattr(data, "dtype"):
        data = np.asarray(
            [as_array(d, None) if hasattr(d, "node") else d for d in data] if isinstance(data, (list, tuple)) else data
        )
        if data.dtype == object or data.dtype.kind in "USMm":
            raise DTypeError("these values do not make a tensor", got=str(data.dtype), expected="numbers in equal rows")
        if dtype is None and data.dtype == np.float64:
            dtype = get_default_dtype()
    if isinstance(data, np.generic):
        data = np.asarray(data)
    return data if dtype is None else data.astype(dtype, copy=False)


def _finish(array: Any, device: str | None, requires_grad: bool) -> Tensor:
    from ox.tensor import Tensor

    t: Any = Tensor(array)
    if device not in (None, "cpu"):
        t = t.to(device)
    t.requires_grad = requires_grad
    return t  # type: ignore[no-any-return]


def tensor(data: Any, *, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """A copy of `data` as a tensor. `torch.tensor`."""
    return _finish(as_array(data, dtype).copy(), device, requires_grad)


def as_tensor(data: Any, *, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """`data` itself when it is a tensor of that type, else a tensor that shares memory where it can. `torch.as_tensor`."""
    if hasattr(data, "node") and (dtype is None or data.dtype == dtype) and device in (None, data.device):
        return data  # type: ignore[no-any-return]
    return _finish(as_array(data, dtype), device, False)


def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """A tensor over the same memory. `torch.from_numpy`."""
    if not isinstance(array, np.ndarray):
        raise DTypeError("from_numpy takes a NumPy array", got=type(array).__name__, hint="ox.tensor(data)")
    return _finish(array, None, False)


def full(
    *shape: Any,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
    fill_value: Any = None,
) -> Tensor:
    """``full(shape, value)``: a shape full of one number. `torch.full`."""
    if fill_value is None:
        *shape, fill_value = shape  # type: ignore[assignment]
    return _filled(shape, fill_value, dtype, device, requires_grad)


def _filled(shape: Sequence[Any], value: Any, dtype: DType | None, device: str | None, requires_grad: bool) -> Tensor:
    from ox.functions.shapes import sizes_of
    from ox.ops.dim import Dim, size_tensor
    from ox.ops.operator import OPS

    sizes = sizes_of(tuple(shape))
    if dtype is None:
        dtype = as_array(value, None).dtype
    if any(isinstance(s, Dim) for s in sizes):
        return OPS["ConstantOfShape"](size_tensor(sizes), value=np.full(1, value, dtype))
    return _finish(np.full(sizes, value, dtype), device, requires_grad)


def zeros(*shape: Any, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """``zeros(2, 3)`` or ``zeros((2, 3))``. `torch.zeros`."""
    return _filled(shape, 0, dtype or get_default_dtype(), device, requires_grad)


def ones(*shape: Any, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """``ones(2, 3)`` or ``ones((2, 3))``. `torch.ones`."""
    return _filled(shape, 1, dtype or get_default_dtype(), device, requires_grad)


def empty(*shape: Any, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """A shape whose values are not to be relied on (they are zeros). `torch.empty`."""
    return zeros(*shape, dtype=dtype, device=device, requires_grad=requires_grad)


def arange(
    start: Any, end: Any = None, step: Any = 1, *, dtype: DType | None = None, device: str | None = None
) -> Tensor:
    """Evenly spaced values in [start, end); integers unless one is a float. `torch.arange`, ONNX Range."""
    from ox.operands import scalar
    from ox.ops.dim import Dim
    from ox.ops.operator import OPS

    if end is None:
        start, end = 0, start
    if dtype is None:
        dtype = int64 if all(isinstance(v, (int, np.integer)) for v in (start, end, step)) else get_default_dtype()
    if any(isinstance(v, Dim) for v in (start, end, step)):
        return OPS["Range"](*(scalar(v, dtype) for v in (start, end, step)))
    return _finish(np.arange(start, end, step).astype(dtype), device, False)


def linspace(start: float, end: float, steps: int, *, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """`steps` values from start to end, both included. `torch.linspace`."""
    return _finish(np.linspace(start, end, steps).astype(dtype or get_default_dtype()), device, False)


def eye(n: int, m: int | None = None, *, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """The identity matrix. `torch.eye`."""
    return _finish(np.eye(n, m, dtype=dtype or get_default_dtype()), device, False)
