"""Rectifiers that are methods of Tensor, too; the others are in `ox.nn.functional`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ox import ops
from ox.core.constants import scalar
from ox.errors import ShapeError
from ox.functions.operand_arguments import only_floats
from ox.functions.shapes import reshape

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

__all__ = ["hardshrink", "prelu"]


def prelu(input: Any, weight: Any) -> Tensor:
    """x, below 0 times a learned slope: one for all, or one a channel, dimension 1. `torch.nn.functional.prelu`,
    ONNX PRelu.

    Raises:
        ShapeError: another number of slopes.
    """
    rank, many = input.array.ndim, weight.array.size
    channels = input.static_shape[1] if rank > 1 else 1
    if many not in (1, channels) or weight.array.ndim > 1:
        raise ShapeError(
            "prelu's weight does not fit the channels",
            expected=f"[1] or [{channels}]",
            got=f"weight {list(weight.static_shape)} for input {list(input.static_shape)}",
        )
    return ops.PRelu(input, reshape(weight, [-1] + [1] * max(rank - 2, 0) if rank else []))


def hardshrink(input: Any, lambd: float = 0.5) -> Tensor:
    """x where it is farther from 0 than lambd, else 0. `torch.nn.functional.hardshrink`."""
    only_floats("hardshrink", input)
    dtype = input.array.dtype
    # (ONNX's Shrink makes 0 of NaN)
    return ops.Where(ops.LessOrEqual(ops.Abs(input), scalar(lambd, dtype)), scalar(0, dtype), input)
