"""Packing by operators, where a recording computes or takes the lengths: how much is packed depends on their values.

The functions of `ox.nn.utils.rnn` call these in such a recording, and NumPy on the lengths otherwise.
"""

from __future__ import annotations

from typing import Any

from ox import ops
from ox.core.constants import constant, ints
from ox.core.operator import as_input
from ox.core.symbolic import size_tensor
from ox.dtypes import int32, int64, onnx_type
from ox.tensors.tensor import Tensor


def is_recorded(x: Any) -> bool:
    """Whether the active recording computes or takes `x`."""
    recorded = getattr(x, "_recorded", None)
    return recorded is not None and bool(recorded.active())


def descending(lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The lengths from the longest on, and the order of the sequences."""
    found: tuple[Tensor, Tensor] = ops.TopK(lengths, ops.Shape(lengths), axis=0, outputs=2)
    return found


def inverse(order: Tensor) -> Tensor:
    """The order that undoes an order."""
    found: Tensor = ops.TopK(order, ops.Shape(order), axis=0, largest=0, outputs=2)[1]
    return found


def pack(input: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The data [total, *] of input [T, N, *] with lengths [N], the longest first, and its batch sizes."""
    lengths = ops.Cast(lengths, to=onnx_type(int64))
    longest = ops.ReduceMax(lengths, ints(0), keepdims=1)
    steps = _numbers(ops.Squeeze(longest, ints(0)))
    alive = ops.Less(ops.Unsqueeze(steps, ints(1)), ops.Unsqueeze(lengths, ints(0)))
    used = ops.Slice(input, ints(0), longest, ints(0))
    return packed_data(used, alive), ops.ReduceSum(ops.Cast(alive, to=onnx_type(int64)), ints(1), keepdims=0)


def alive_of(batch_sizes: Tensor) -> Tensor:
    """Whether each [step, sequence] holds data, the longest sequence first."""
    count = ops.Squeeze(ops.Slice(batch_sizes, ints(0), ints(1), ints(0)), ints(0))
    return ops.Less(ops.Unsqueeze(_numbers(count), ints(0)), ops.Unsqueeze(batch_sizes, ints(1)))


def lengths_of(alive: Tensor) -> Tensor:
    """int32 [N], as the recurrent operators take them."""
    return ops.ReduceSum(ops.Cast(alive, to=onnx_type(int32)), ints(0), keepdims=0)


def padded_data(data: Tensor, alive: Tensor, padding: float | None = None) -> Tensor:
    """Packed data as [step, sequence, *]; beyond each sequence is `padding`, or anything where that is None."""
    counted = ops.CumSum(ops.Reshape(ops.Cast(alive, to=onnx_type(int64)), ints(-1)), as_input(0))
    places = ops.Reshape(ops.Sub(counted, as_input(1)), ops.Shape(alive))
    padded = ops.Gather(data, places, axis=0)
    if padding is None:
        return padded
    held = ops.Unsqueeze(alive, ints(*range(2, padded.array.ndim))) if padded.array.ndim > 2 else alive
    return ops.Where(held, padded, constant(padding, padded))


def packed_data(padded: Tensor, alive: Tensor) -> Tensor:
    """[total, *] of padded data [step, sequence, *]."""
    places = ops.Squeeze(ops.NonZero(ops.Reshape(alive, ints(-1))), ints(0))
    return ops.Gather(ops.Reshape(padded, ints(-1, *padded.static_shape[2:])), places, axis=0)


def with_steps(padded: Tensor, total: int, padding: float) -> Tensor:
    """Padded data [step, sequence, *] with more steps behind, `total` in all."""
    missing = ops.Sub(size_tensor([total]), ops.Shape(padded, start=0, end=1))
    return ops.Pad(padded, ops.Concat(ints(0), missing, axis=0), constant(padding, padded), ints(0))


def _numbers(count: Tensor) -> Tensor:
    """0 to `count`, exclusively."""
    return ops.Range(as_input(0), count, as_input(1))
