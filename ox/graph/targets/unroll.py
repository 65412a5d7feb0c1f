"""Scans of a fixed number of steps without the loop, for runtimes that have none."""

from __future__ import annotations

import numpy as np

from ox.graph.ir import Graph, Node, Value
from ox.graph.passes.shape_inference import Dims
from ox.graph.targets.expand import spliced

MOST_STEPS = 256  # each is a copy of the body


def unroll_scans(graph: Graph, dims: Dims) -> bool:
    """Write each Scan over the first axis as its steps, one after the other. Exact. Whether there was one.

    Left as they are: more than `MOST_STEPS` steps, or as many as a size that varies; other axes; loops inside.

    Args:
        dims: inferred sizes by value name.
    """
    nodes: list[Node] = []
    unrolled = False
    for node in graph.nodes:
        steps = _steps(node, dims)
        if steps is None:
            nodes.append(node)
            continue
        nodes += _unrolled(graph, node, steps)
        unrolled = True
    graph.nodes = nodes
    return unrolled


def _steps(node: Node, dims: Dims) -> int | None:
    """How many steps a Scan has that can be unrolled."""
    if node.key != "Scan":
        return None
    body: Graph = node.attributes["body"]
    axes = [*(node.attributes.get(f"scan_{end}_axes") or () for end in ("input", "output"))]
    if any(axis for each in axes for axis in each) or any(True for n in body.nodes for _ in n.subgraphs()):
        return None
    first = node.inputs[len(body.inputs) - node.attributes["num_scan_inputs"]]
    known = dims.get(first.name) if first is not None else None
    steps = known[0] if known else None
    return steps if isinstance(steps, int) and 0 < steps <= MOST_STEPS else None


def _unrolled(graph: Graph, node: Node, steps: int) -> list[Node]:
    """The nodes of all steps, and those that stack the results."""
    body: Graph = node.attributes["body"]
    count = len(body.inputs) - node.attributes["num_scan_inputs"]  # of states
    given = [v for v in node.inputs if v is not None]
    states, sequences, captures = given[:count], given[count : len(body.inputs)], given[len(body.inputs) :]
    backward = [list(node.attributes.get(f"scan_{end}_directions") or ()) for end in ("input", "output")]
    nodes: list[Node] = []
    results: list[list[Value]] = [[] for _ in body.outputs[count:]]

    def add(kind: str, inputs: list[Value | None], output: Value, **attributes: int) -> Value:
        nodes.append(Node(kind, "", inputs, [output], attributes, where=node.where, module=node.module))
        return output

    def number(array: object) -> Value:
        made = np.array(array, np.int64)
        value = Value(f"{node.outputs[0].name}/number", made.dtype, made.shape, made.shape)
        graph.constants[value] = made
        return value

    for step in range(steps):
        slices = []
        for i, sequence in enumerate(sequences):
            at = number(steps - 1 - step if backward[0][i : i + 1] == [1] else step)
            shape = sequence.shape and sequence.shape[1:]
            slices.append(add("Gather", [sequence, at], Value("slice", sequence.dtype, None, shape), axis=0))
        made, outputs = spliced(graph, body, [*states, *slices, *captures], node)
        nodes += made
        states = outputs[:count]
        for kept, value in zip(results, outputs[count:], strict=True):
            kept.append(value)
    for old, new in zip(node.outputs[:count], states, strict=False):
        add("Identity", [new], old)
    for i, (old, values) in enumerate(zip(node.outputs[count:], results, strict=False)):
        ordered = values[::-1] if backward[1][i : i + 1] == [1] else values
        axis = number([0])
        parts: list[Value | None] = []
        for value in ordered:
            shape = None if value.shape is None else (1, *value.shape)
            parts.append(add("Unsqueeze", [value, axis], Value("step", value.dtype, None, shape)))
        add("Concat", parts, old, axis=0)
    return nodes
