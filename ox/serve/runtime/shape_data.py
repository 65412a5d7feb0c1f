"""How many values onnx's shape inference would carry along: with `data_prop` it computes shape-like values.

It keeps every element of such a tensor, at some 130 bytes each, and Concat joins them: thirty Concats of a tensor with
itself are a file of 1 kB and 130 GB. The numbers are counted here before it is called.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import MutableMapping

import onnx

from ox.graph.reader.model_file import subgraphs

MAX_ELEMENTS = 1 << 19  # elements of all tensors together
MAX_RANK = 64  # elements of a Shape: more dimensions than any runtime has
# The operators whose results onnx computes, as `OpSchema.has_data_propagation_function` has them. A list, because the
# bounds below hold for these: for another one somebody has to look.
CARRYING = {"Add", "Cast", "Concat", "Gather", "Mul", "Shape", "Size", "Slice", "Squeeze", "Sub", "Unsqueeze"}


def is_small_shape_data(graph: onnx.GraphProto) -> bool:
    """Whether `infer_shapes(..., data_prop=True)` takes little memory for a graph without functions."""
    return _carried(graph, ChainMap(), 0) <= MAX_ELEMENTS


def _carried(graph: onnx.GraphProto, outer: ChainMap[str, int], total: int) -> int:
    """`total` and an upper bound of the elements that this graph adds; no further than just above the most."""
    counts: ChainMap[str, int] = outer.new_child()
    for tensor in graph.initializer:
        counts[tensor.name] = math.prod(tensor.dims)
    for node in graph.node:
        total += _results(node, counts)
        for inner in subgraphs(node):
            total = _carried(inner, counts, total)
        if total > MAX_ELEMENTS:
            break
    return total


def _results(node: onnx.NodeProto, counts: MutableMapping[str, int]) -> int:
    if node.op_type == "Constant":
        count = sum(constant_elements(entry) for entry in node.attribute)
    elif node.op_type not in CARRYING:
        count = 0
    elif node.op_type == "Concat":
        count = sum(counts.get(name, 0) for name in node.input)
    elif node.op_type == "Shape":
        count = MAX_RANK
    else:  # at most one element for each of an input
        count = max([1, *(counts.get(name, 0) for name in node.input)])
    counts.update((name, count) for name in node.output if name)
    return count * len(node.output)


def constant_elements(value: onnx.AttributeProto) -> int:
    """The elements of a Constant that has this value."""
    if value.HasField("t"):
        return math.prod(value.t.dims)
    return max(1, len(value.ints), len(value.floats), len(value.strings))
