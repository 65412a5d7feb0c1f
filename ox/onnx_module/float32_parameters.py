"""A loaded float16 file with its numbers in float32, in which it can learn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ox.dtypes import onnx_type
from ox.graph.ir import Graph, Node, Value
from ox.nn.parameter import Parameter
from ox.onnx_module.loaded import Loaded

HALF, SINGLE = np.dtype(np.float16), np.dtype(np.float32)
TYPES = ("to", "dtype", "output_dtype")  # attributes that name an element type


def has_float16_parameters(net: Loaded) -> bool:
    """Whether an optimizer would get float16 numbers."""
    return any(isinstance(x, Parameter) and x.dtype == HALF for x in net.state.values())


def to_float32(net: Loaded) -> None:
    """Let everything that is float16 in a file be float32, in place; its inputs and outputs keep their types.

    In float16 Adam's eps of 1e-8 is 0, so that it divides by zero, and an update below 1/2048 of a weight rounds away:
    Micikevicius et al., "Mixed Precision Training", 2018, keep a copy of the weights in float32 for that.
    """
    graph = net.graph
    entering = [(v, replace(v, name=f"{v.name}/float32", dtype=SINGLE)) for v in graph.inputs if v.dtype == HALF]
    leaving = [(i, v.name) for i, v in enumerate(graph.outputs) if v.dtype == HALF and v not in graph.constants]
    for outer, inner in entering:
        graph.replace(outer, inner)
    _widen(graph, {outer for outer, _ in entering})
    casts = [Node("Cast", "", [outer], [inner], {"to": onnx_type(SINGLE)}) for outer, inner in entering]
    graph.nodes = [*casts, *graph.nodes]
    for i, name in leaving:
        inner = graph.outputs[i]
        graph.outputs[i] = replace(inner, name=name, dtype=HALF)
        inner.name = f"{name}/float32"
        graph.nodes.append(Node("Cast", "", [inner], [graph.outputs[i]], {"to": onnx_type(HALF)}))
    for v in graph.owned:
        net.state[v.name].array = graph.constants[v]


def _widen(graph: Graph, kept: set[Value]) -> None:
    for value in [*graph.values(), *graph.outputs]:
        if value.dtype == HALF and value not in kept:
            value.dtype = SINGLE
    graph.constants = {v: a.astype(SINGLE) if a.dtype == HALF else a for v, a in graph.constants.items()}
    for node in graph.nodes:
        for name, given in node.attributes.items():
            if name in TYPES and given == onnx_type(HALF):
                node.attributes[name] = onnx_type(SINGLE)
            elif isinstance(given, np.ndarray) and given.dtype == HALF:
                node.attributes[name] = given.astype(SINGLE)
        for _, inside in node.subgraphs():
            _widen(inside, set())
