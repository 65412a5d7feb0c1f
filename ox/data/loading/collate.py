"""Collating: samples to batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from ox.core.operator import make_tensor
from ox.errors import DTypeError, ShapeError
from ox.tensors.tensor import Tensor


class _Allocator:
    """Allocates the arrays of a batch. A worker sets `empty` to its shared memory, which saves a copy."""

    empty: Callable[..., np.ndarray[Any, Any]] = staticmethod(np.empty)


allocator = _Allocator()


def _stack(arrays: list[Any]) -> np.ndarray[Any, Any]:
    """`np.stack` along a new first dimension, twice as fast."""
    first = arrays[0]
    if not isinstance(first, np.ndarray | np.generic) or any(a.dtype != first.dtype for a in arrays):
        return np.stack(arrays)  # on a GPU, or of mixed types
    dtype = first.dtype.newbyteorder("=")  # native byte order
    if not first.shape:
        return np.array(arrays, dtype)
    out = allocator.empty((len(arrays), *first.shape), dtype)
    np.concatenate(arrays, out=out.reshape(len(arrays) * first.shape[0], *first.shape[1:]))
    return out


def default_collate(batch: Sequence[Any]) -> Any:
    """Tensors and arrays are stacked, floats become float64, ints int64, bools bool tensors, strings stay as they come;
    tuples, lists and dicts are collated entry by entry. `torch.utils.data.default_collate`. Besides: dataclasses are
    collated field by field, and an entry that is None in all samples stays None.

    Raises:
        ShapeError: samples of different shapes or lengths.
        DTypeError: a type that cannot be collated.
    """
    first = batch[0]
    if any(sample is None for sample in batch):
        raise _none_error(batch)
    if isinstance(first, str | bytes):  # NumPy's too
        return batch
    if isinstance(first, Tensor | np.ndarray | np.generic):
        arrays = [x.array if isinstance(x, Tensor) else x for x in batch]
        if any(a.shape != arrays[0].shape for a in arrays):
            shapes = sorted({str(list(a.shape)) for a in arrays})
            odd = next(i for i, a in enumerate(arrays) if a.shape != arrays[0].shape)
            raise ShapeError(
                "samples of different shapes do not make a batch",
                expected=f"all {list(arrays[0].shape)}",
                got=f"{', '.join(shapes[:4])}; number {odd} of the batch is the first that differs",
                hint="a collate_fn that pads, or batch_size=1",
            )
        if not isinstance(first, Tensor) and any(a.dtype.kind in "USOMm" for a in arrays):
            odd = next(i for i, a in enumerate(arrays) if a.dtype.kind in "USOMm")
            raise DTypeError(
                "arrays of text, times or objects do not make a batch",
                expected="numbers or bools",
                got=f"{arrays[odd].dtype}, number {odd} of the batch",
                hint="strings by themselves stay as they are; or a collate_fn of your own",
            )
        return make_tensor(_stack(arrays))
    if isinstance(first, bool | int | float):
        kind = np.bool_ if isinstance(first, bool) else np.int64 if isinstance(first, int) else np.float64
        return make_tensor(np.array(batch, kind))
    if isinstance(first, Mapping):
        return {key: _collate_entry([sample[key] for sample in batch]) for key in first}
    if is_dataclass(first) and not isinstance(first, type):
        named = [field.name for field in fields(first) if field.init]
        return replace(first, **{name: _collate_entry([getattr(sample, name) for sample in batch]) for name in named})
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise ShapeError("samples of different lengths do not make a batch")
        parts = [_collate_entry(part) for part in zip(*batch, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else parts
    raise DTypeError(
        f"{type(first).__name__} cannot be collated into a batch",
        expected="tensors, arrays, numbers, strings, or tuples, lists and dicts of them",
        hint="a collate_fn of your own",
    )


def _collate_entry(values: Sequence[Any]) -> Any:
    """Collates one entry of all samples; it may be None in all of them."""
    return None if all(value is None for value in values) else default_collate(values)


def _none_error(batch: Sequence[Any]) -> DTypeError:
    odd = next(i for i, sample in enumerate(batch) if sample is None)
    return DTypeError(
        "None cannot be collated into a batch",
        expected="a value in each sample",
        got=f"None, number {odd} of the batch",
        hint="a value in its place (a dataset's __getitem__ returns on every way), or a collate_fn of your own",
    )


def default_convert(data: Any) -> Any:
    """Arrays become tensors, inside tuples, lists and dicts too; all else stays. `torch.utils.data.default_convert`."""
    if isinstance(data, np.ndarray | np.generic):
        array = np.asarray(data)
        return make_tensor(array) if array.dtype.kind not in "OUS" else data
    if isinstance(data, Mapping):
        return {key: default_convert(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        parts = [default_convert(part) for part in data]
        return type(data)(*parts) if hasattr(data, "_fields") else parts
    return data
