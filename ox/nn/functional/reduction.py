"""What the losses share: reductions, and checks of shapes and types."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np

from ox import ops
from ox.dtypes import is_floating
from ox.errors import DTypeError, ShapeError
from ox.nn.functional.arguments import one_of
from ox.tensors.tensor import Tensor

REDUCTIONS = ("mean", "sum", "none")


def legacy(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The reduction, from `reduction` or from the two deprecated arguments `reduce` and `size_average`."""
    if size_average is None and reduce is None:
        return reduction
    average, whether = size_average is not False, reduce is not False
    meant = "none" if not whether else "mean" if average else "sum"
    warnings.warn(f"size_average and reduce are of old: reduction={meant!r}", FutureWarning, stacklevel=3)
    return meant


def reduced(loss: Tensor, reduction: str) -> Tensor:
    """The mean, the sum, or the loss as it is."""
    if reduction == "mean":
        floating("a mean", loss)
        return ops.ReduceMean(loss, keepdims=0)
    return ops.ReduceSum(loss, keepdims=0) if one_of(reduction, "reduction", REDUCTIONS) == "sum" else loss


def same_shape(name: str, input: Tensor, target: Tensor) -> None:
    """Raise ShapeError unless both have one shape."""
    if input.static_shape != target.static_shape:
        raise ShapeError(
            f"{name} compares values one by one",
            expected=f"target {list(input.static_shape)}",
            got=f"target {list(target.static_shape)}",
            hint="target.reshape(input.shape), or target.unsqueeze(1) for an output of one column",
        )


def broadcastable(name: str, input: Tensor, target: Tensor) -> None:
    """Warn of another shape of the target, as PyTorch does; raise ShapeError where the two do not meet, or each value
    meets more than one: [n] with [n, 1] would make n² differences."""
    a, b = input.static_shape, target.static_shape
    if a == b:
        return
    if not _meet_singly(a, b):
        same_shape(name, input, target)
    warnings.warn(f"{name}: target {list(b)} is broadcast with the input, {list(a)}", stacklevel=3)


def _meet_singly(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    try:
        together = np.broadcast_shapes(a, b)
    except ValueError:
        return False
    return math.prod(together) <= max(math.prod(a), math.prod(b))


def floating(name: str, *inputs: Tensor) -> None:
    """Raise DTypeError unless all are floats."""
    for x in inputs:
        if not is_floating(x.array.dtype):
            raise DTypeError(f"{name} does not take {x.array.dtype}", expected="a floating type", hint="x.float()")


def classes(name: str, target: Tensor, shape: Sequence[int], for_input: Sequence[int]) -> None:
    """Raise unless target holds integers and has the shape that belongs to the input's."""
    t = target.array
    if t.dtype.kind not in "iu":
        raise DTypeError(
            f"{name} does not accept targets of type {t.dtype}", expected="int64 classes", hint="target.long()"
        )
    if t.shape != tuple(shape):
        raise ShapeError(
            f"{name} cannot score {list(for_input)} against {list(t.shape)}",
            expected=f"target {list(shape)} for input {list(for_input)}",
            got=f"target {list(t.shape)}",
        )
