"""Clean-up of a recorded graph. Each pass keeps what the graph computes, its inputs, its outputs and what it owns."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ox.autograd.grad_mode import no_grad
from ox.core import operator
from ox.graph.ir import Array, Graph, Node, Value
from ox.graph.passes.dead_outputs import remove_dead_outputs
from ox.graph.replay import call

LARGEST_FOLD = 1 << 16  # elements; a larger constant is cheaper to compute than to store


def remove_dead(graph: Graph) -> None:
    """Drop nodes and constants that no output needs; in subgraphs too, with the outputs and captures of theirs."""
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if any(v in needed for v in node.outputs):
            kept.append(node)
            remove_dead_outputs(node, needed)
            needed.update(v for v in node.inputs if v is not None)
    graph.nodes = kept[::-1]
    graph.constants = {v: a for v, a in graph.constants.items() if v in needed}
    graph.owned &= graph.constants.keys()


def remove_identities(graph: Graph) -> bool:
    """Let readers of an Identity read its input, unless it makes a graph output out of an input or a constant.

    The graph's outputs stay the same values: what was copied to one is made as that one. Whether any was removed.
    """
    ends, outputs = {*graph.inputs, *graph.captures, *graph.constants}, set(graph.outputs)
    kept: list[Node] = []
    stands: dict[Value, Value] = {}  # what stands for the result of an Identity
    becomes: dict[Value, Value] = {}  # the graph output that a value is made as
    inner = False
    for node in graph.nodes:
        for _, inside in node.subgraphs():
            inner = remove_identities(inside) or inner
        node.inputs = [None if v is None else stands.get(v, v) for v in node.inputs]
        if node.op_type != "Identity" or node.domain:
            kept.append(node)
            continue
        (source,), (result,) = node.inputs, node.outputs
        assert source is not None
        if result not in outputs:
            stands[result] = source
        elif source in ends or source in outputs:
            kept.append(node)
        else:
            result.dims = result.dims or source.dims
            becomes[source] = stands[source] = result
    if becomes:
        for node in kept:
            node.inputs = [None if v is None else becomes.get(v, v) for v in node.inputs]
            node.outputs = [becomes.get(v, v) for v in node.outputs]
    removed = len(kept) < len(graph.nodes)
    graph.nodes = kept
    return removed or inner


def fold_constants(graph: Graph) -> bool:
    """Run nodes whose inputs are all numbers of the code, and keep the result. Whether anything was folded.

    What is computed from a parameter stays computed: folding would take its name away, and its training.
    """
    foldable = set(graph.constants) - graph.owned
    kept: list[Node] = []
    before = graph.nodes
    inner = [fold_constants(inside) for node in graph.nodes for _, inside in node.subgraphs()]
    with no_grad():
        for node in graph.nodes:
            if node.domain or operator.OPS[node.key].random or not all(v is None or v in foldable for v in node.inputs):
                kept.append(node)
                continue
            if fold(graph, node):
                foldable.update(node.outputs)
            else:
                kept.append(node)
    graph.nodes = kept
    return len(kept) < len(before) or any(inner)


def fold(graph: Graph, node: Node) -> bool:
    """Make constants of the results of a node whose inputs are constants, unless they are large or graph outputs."""
    if any(v in graph.outputs for v in node.outputs):
        return False
    results = compute(graph, node)
    if any(array.size > LARGEST_FOLD for array in results):
        return False
    for value, array in zip(node.outputs, results, strict=False):
        graph.constants[value] = array
        value.shape = value.dims = array.shape
    return True


def compute(graph: Graph, node: Node) -> list[Array]:
    """The results of a node whose inputs are constants, in memory of their own."""
    results = call(node, [None if v is None else operator.make_tensor(graph.constants[v]) for v in node.inputs])
    return [np.array(result.array, order="C") for result in results]


def fold_shapes(graph: Graph, dims: Mapping[str, tuple[int | str | None, ...]]) -> bool:
    """Replace a Shape whose sizes are all known numbers by a constant, and a Gather of known ones among others.

    Args:
        dims: inferred sizes by value name; a string or None is a size that may change.
    """
    kept: list[Node] = []
    partly: dict[Value, tuple[int | str | None, ...]] = {}  # Shapes of which some sizes are known
    inner = False
    for node in graph.nodes:
        for _, inside in node.subgraphs():
            # inference names no value inside, but what is captured keeps the sizes that it has outside
            outside = zip(inside.captures, node.inputs[len(node.inputs) - len(inside.captures) :], strict=True)
            sizes = {c.name: v.dims if v in graph.constants else dims.get(v.name) for c, v in outside if v is not None}
            inner = fold_shapes(inside, {name: known for name, known in sizes.items() if known is not None}) or inner
        source = node.inputs[0] if node.inputs else None
        picked = _picked(node, partly, graph)
        if picked is not None:
            graph.constants[node.outputs[0]] = picked
            node.outputs[0].shape = node.outputs[0].dims = picked.shape
            continue
        known = None
        if node.op_type == "Shape" and source is not None and node.outputs[0] not in graph.outputs:
            known = source.dims if source in graph.constants else dims.get(source.name)
        part = (None,) if known is None else known[slice(node.attributes.get("start", 0), node.attributes.get("end"))]
        if all(isinstance(size, int) for size in part):
            value = node.outputs[0]
            graph.constants[value] = np.array(part, np.int64)
            value.shape = value.dims = (len(part),)
        else:
            if known is not None:
                partly[node.outputs[0]] = part
            kept.append(node)
    folded = len(kept) < len(graph.nodes)
    graph.nodes = kept
    return folded or inner


def _picked(node: Node, shapes: Mapping[Value, tuple[int | str | None, ...]], graph: Graph) -> Array | None:
    """What a Gather takes out of a Shape, where these sizes are known numbers."""
    if node.key != "Gather" or node.inputs[0] not in shapes or node.outputs[0] in graph.outputs:
        return None
    sizes, indices = shapes[node.inputs[0]], graph.constants.get(node.inputs[1])  # type: ignore[index, arg-type]
    if indices is None or not ((indices >= -len(sizes)) & (indices < len(sizes))).all():
        return None
    found = [sizes[i] for i in indices.ravel().tolist()]
    return np.array(found, np.int64).reshape(indices.shape) if all(isinstance(n, int) for n in found) else None


def merge_constants(graph: Graph) -> None:
    """One constant for equal small ones that code made anew at each use; what the graph owns stays apart."""
    for node in graph.nodes:
        for _, inside in node.subgraphs():
            merge_constants(inside)
    first: dict[tuple[str, tuple[int, ...], bytes], Value] = {}
    stands: dict[Value, Value] = {}
    for value, array in graph.constants.items():
        if array.size > 64 or value in graph.owned or value in graph.outputs:
            continue
        kept = first.setdefault((str(array.dtype), array.shape, array.tobytes()), value)
        if kept is not value:
            stands[value] = kept
    for value in stands:
        del graph.constants[value]
    for node in graph.nodes if stands else ():
        node.inputs = [None if v is None else stands.get(v, v) for v in node.inputs]
