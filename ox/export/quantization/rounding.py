"""How far apart two runtimes may be that both compute a quantized graph rightly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ox.autograd.grad_mode import no_grad
from ox.core.operator import OPS, kind_of, make_tensor
from ox.devices import cpu
from ox.dtypes import PACKED
from ox.graph.ir import Array, Graph, Node, Value
from ox.graph.replay import call, replay

ROUNDING = ("QuantizeLinear", "DynamicQuantizeLinear")
DITHER = 0.02  # of a step: how differently ONNX Runtime's integer kernels add, whose biases are integers too
REPEATS = 2
Feed = Mapping[str, Array]


def rounding_tolerance(graph: Graph, cases: Sequence[tuple[Feed, Feed]]) -> float | None:
    """The largest difference of outputs that rounding explains; None for a graph that rounds nothing to integers.

    A sum that falls between two steps may be rounded to either, because runtimes fuse the operators between two
    QuantizeLinear into one with integers, and add in another order. So outputs may be a step apart; or twice as far as
    they move in ox itself where every value is moved by a small part of a step before it is rounded.

    Args:
        cases: inputs with the outputs of the eager model.
    """
    blockwise = _blockwise_products(graph)
    if not blockwise and not any(_rounds(graph, node) for node in graph.all_nodes()):
        return None
    random = np.random.default_rng(0)

    def run(node: Node, inputs: Sequence[Any]) -> tuple[Any, ...]:
        x, *others = inputs if inputs else [None]
        if x is None or not x.numel() or not (id(node) in blockwise or _rounds(graph, node)):
            return call(node, inputs)
        array = cpu(x.array)
        if id(node) in blockwise:
            size = np.abs(array).max() / 127 / 2
        elif node.key == "DynamicQuantizeLinear":
            size = DITHER * np.ptp(array) / 255
        else:
            size = DITHER * _scale(node, inputs)
        moved = array + random.uniform(-1, 1, array.shape) * size
        return call(node, [make_tensor(moved.astype(array.dtype)), *others])

    furthest = 0.0
    with no_grad():
        for inputs, outputs in cases:
            for _ in range(REPEATS):
                results = replay(graph, [make_tensor(inputs[v.name]) for v in graph.inputs], None, run)
                for value, result in zip(graph.outputs, results, strict=True):
                    y = outputs[value.name]
                    if y.dtype.kind == "f" and y.size:
                        furthest = max(furthest, float(np.abs(cpu(result.array).astype(np.float64) - y).max()))
    return max(output_step(graph), 2 * furthest)


def _blockwise_products(graph: Graph) -> set[int]:
    """The ids of products with weights of 4 or 2 bits. ONNX Runtime fuses them to MatMulNBits, which by default rounds
    the other factor to int8."""
    makers = graph.producers()
    products = [node for node in graph.nodes if node.key in ("MatMul", "Gemm")]
    return {id(node) for node in products if _is_packed(makers.get(node.inputs[1]) if node.inputs[1] else None)}


def _is_packed(made: Node | None) -> bool:
    source = made.inputs[0] if made is not None and made.key == "DequantizeLinear" else None
    return source is not None and source.dtype in PACKED


def _rounds(graph: Graph, node: Node) -> bool:
    """Whether a node rounds values that differ with the input: a weight is rounded before it comes to a runtime."""
    return node.key in ROUNDING and node.inputs[0] not in graph.constants


def _scale(node: Node, inputs: Sequence[Any]) -> Array:
    """The step of each element, or the largest where scales are by block."""
    scale: Array = np.abs(cpu(inputs[1].array).astype(np.float32))
    if scale.ndim == 1 and scale.size > 1:
        shape = [1] * inputs[0].ndim
        shape[node.attributes.get("axis", 1)] = -1
        return scale.reshape(shape)
    return np.asarray(scale.max())


def output_step(graph: Graph) -> float:
    """The largest step of the rounded values that the outputs are made of; 0 where no output is made of such alone."""
    makers = graph.producers()
    return max((step for value in graph.outputs for step in _steps(graph, makers, value)), default=0.0)


def _passes_on(node: Node) -> bool:
    """Whether a step before a node is at most a step after it: it moves values, or brings them closer together."""
    op = OPS.get(node.key)
    moves = op is not None and (op.moves or op.kind == "padding" or op.contraction)
    return moves or node.key == "DequantizeLinear"


def _steps(graph: Graph, makers: Mapping[Value, Node], value: Value) -> list[float]:
    waiting, seen, found = [value], set(), []
    while waiting:
        node = makers.get(waiting.pop())
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if node.key == "QuantizeLinear":
            scale = node.inputs[1]
            if scale in graph.constants:
                found.append(float(np.abs(graph.constants[scale]).max()))
        elif _passes_on(node):
            data = node.inputs if kind_of(node.key) == "concatenation" else node.inputs[:1]
            waiting += [v for v in data if v is not None]
    return found
