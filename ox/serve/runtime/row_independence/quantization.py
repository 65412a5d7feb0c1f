"""Quantised tensors: scales by tensor or by axis."""

from __future__ import annotations

from collections.abc import Sequence

from ox.serve.runtime.row_independence.node import Node, axis_of, rule
from ox.serve.runtime.row_independence.state import UNKNOWN, Mixes, State, Tensor


@rule("QuantizeLinear", "DequantizeLinear")
def quantize(node: Node) -> Tensor:
    node.fixed(1, 2)
    x, scale = node[0], node[1]
    if x.dims is None:
        return UNKNOWN
    for_each = x.axis is not None and any(size != 1 for size in scale.sizes)
    if for_each and (scale.rank > 1 or axis_of(node.integer("axis", 1), x.rank) == x.axis):
        raise Mixes("has a scale for each row")
    return x.with_dims(x.sizes)


@rule("DynamicQuantizeLinear")
def dynamic_quantize(node: Node) -> Sequence[State]:
    if node[0].varies:
        raise Mixes("takes one scale from all rows")
    return [Tensor(node[0].dims), Tensor(()), Tensor(())]
