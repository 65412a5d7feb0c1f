"""GroupNormalization as an InstanceNormalization of groups, which ONNX Runtime computes in half the time."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from ox.dtypes import float32
from ox.graph.ir import Array, Graph, Node, Value
from ox.graph.passes.walk import Walk


def expand_group_norms(graph: Graph) -> bool:
    """Replace each GroupNormalization of float32 with a constant scale and bias of its own. Whether there were any.

    Within `ox.tolerance`. ONNX Runtime 1.32 has no kernel of it for CPUs and runs its definition, a dozen operators. In
    other element types the norm computes in float32 and an InstanceNormalization would not, so they stay.
    """
    readers = Counter(v for node in graph.nodes for v in node.inputs)
    walk = Walk(graph)
    for node in walk:
        if node.key == "GroupNormalization" and _can_expand(graph, node, readers):
            _expand(walk, node)
            walk.changed = True
        else:
            walk.keep(node)
    return walk.changed


def _can_expand(graph: Graph, node: Node, readers: Counter[Value | None]) -> bool:
    x, *weights = node.inputs
    if x is None or x.dtype != float32 or x.shape is None or len(x.shape) < 3 or len(node.outputs) > 1:
        return False
    return all(
        v in graph.constants and v not in graph.overridable and readers[v] == 1 and v not in graph.outputs
        for v in weights
    )


def _expand(walk: Walk, node: Node) -> None:
    """Add the nodes that stand for the norm."""
    x, scale, bias = node.inputs
    (result,) = node.outputs
    assert x is not None and x.shape is not None and scale is not None and bias is not None
    groups, batch = int(node.attributes["num_groups"]), x.shape[0]
    rows = (batch, groups, math.prod(x.shape[1:]) // groups)

    def call(kind: str, name: str, *inputs: Value, shape: tuple[int, ...], **attributes: object) -> Value:
        dtype = np.dtype(np.int64) if kind == "Shape" else result.dtype
        made = Value(f"{result.name}/{name}", dtype, None, shape) if name else result
        walk.keep(Node(kind, "", list(inputs), [made], attributes, "", node.where, node.module))
        return made

    def number(name: str, array: Array) -> Value:
        made = walk.constant(array, result)
        made.name = f"{result.name}/{name}"
        return made

    apart = call("Reshape", "groups", x, number("sizes", np.array([0, groups, -1], np.int64)), shape=rows)
    one, zero = (number(name, np.full(groups, n, np.float32)) for name, n in (("one", 1), ("zero", 0)))
    epsilon = node.attributes.get("epsilon", 1e-5)
    normal = call("InstanceNormalization", "normal", apart, one, zero, shape=rows, epsilon=epsilon)
    sizes = call("Shape", "shape", x, shape=(len(x.shape),))
    back = call("Reshape", "back", normal, sizes, shape=x.shape, allowzero=1)
    for value in (scale, bias):  # one for each channel
        array = walk.graph.constants[value].reshape(-1, *[1] * (len(x.shape) - 2))
        walk.graph.constants[value] = array
        value.shape = value.dims = array.shape
    call("Add", "", call("Mul", "scaled", back, scale, shape=x.shape), bias, shape=x.shape)
