"""Dropout from the counter-based generator, so that a captured step draws what eager would."""

from __future__ import annotations

from typing import Any

from ox import ops, random
from ox.dtypes import onnx_type
from ox.errors import ArgumentError
from ox.nn.functional.common import number
from ox.ops.explain import place
from ox.tensor import Tensor


def dropout(input: Tensor, p: float = 0.5, training: bool = True, *, generator: Any = None) -> Tensor:
    """Zero each element with probability `p` and scale the others by 1/(1-p); the input itself when not training.
    `torch.nn.functional.dropout`."""
    if not 0 <= p <= 1:
        raise ArgumentError("dropout's p is a probability", where=place(), expected="0 to 1", got=str(p))
    if not training or p == 0:
        return input
    if p == 1:
        return ops.Mul(input, number(0.0, input))
    keep = ops.GreaterOrEqual(drawn := random.uniform(input.shape, generator=generator), number(p, drawn))
    mask = ops.Mul(ops.Cast(keep, to=onnx_type(input.data.dtype)), number(1 / (1 - p), input))
    return ops.Mul(input, mask)
