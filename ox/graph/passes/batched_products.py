"""Products of more than two dimensions without the Reshapes around them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ox.graph.ir import Graph, Node, Value
from ox.graph.passes.size_analysis import analyze_sizes
from ox.graph.passes.symbolic_sizes import Known, SymbolicSizes


def write_batched_products(graph: Graph, known: Known) -> bool:
    """Write Reshape to rows, Gemm, Reshape back as MatMul and Add of all dimensions, in place. Whether any was.

    So a linear layer has no arithmetic on sizes where more than one of them varies. Within `ox.tolerance`.

    Args:
        known: inferred sizes by the names of values.
    """
    found = analyze_sizes(graph, known)
    producers = graph.producers()
    nodes: list[Node] = []
    changed = False
    for node in graph.nodes:
        product = producers.get(node.inputs[0]) if node.key == "Reshape" and node.inputs[0] is not None else None
        source = None if product is None else _rows_of(product, producers, graph)
        kept = None if product is None or source is None else _restores(node, product, source, found)
        if product is None or source is None or kept is None:
            nodes.append(node)
            continue
        changed = True
        if len(found.of(source) or ()) > kept + 1:  # the last dimensions are one in the product
            nodes.append(_flat_end(graph, product, source, kept))
            source = nodes[-1].outputs[0]
        nodes += _product(node, product, source)
    graph.nodes = nodes
    return changed


def _rows_of(product: Node, producers: Mapping[Value, Node], graph: Graph) -> Value | None:
    """What a plain Gemm multiplies with constants, before it became rows."""
    rows, weight = product.inputs[:2] if product.key == "Gemm" else (None, None)
    attributes = product.attributes
    usual = all(attributes.get(name, 1) == 1 for name in ("alpha", "beta")) and not attributes.get("transA")
    maker = producers.get(rows) if rows is not None else None
    if not usual or weight not in graph.constants or maker is None or maker.key != "Reshape":
        return None
    target = graph.constants.get(maker.inputs[1])  # type: ignore[arg-type]
    return maker.inputs[0] if target is not None and len(target) == 2 and target[0] == -1 else None


def _restores(node: Node, product: Node, source: Value, found: SymbolicSizes) -> int | None:
    """How many dimensions of the source a Reshape gives back to the rows."""
    before, rows, after = found.of(source), found.of(product.inputs[0]), found.of(node.outputs[0])
    if before is None or rows is None or after is None or not 3 <= len(after) <= len(before):
        return None
    kept = len(after) - 1
    ends = [size.number for size in before[kept:]]
    whole = None not in ends and math.prod(n for n in ends if n is not None) == rows[1].number
    return kept if whole and after[:kept] == before[:kept] else None


def _flat_end(graph: Graph, product: Node, source: Value, kept: int) -> Node:
    """A Reshape that leaves the first dimensions as they are, and makes one of the others."""
    made = np.array([0] * kept + [-1], np.int64)
    target = Value(f"{product.outputs[0].name}/target", made.dtype, made.shape, made.shape)
    graph.constants[target] = made
    shape = None if source.shape is None else (*source.shape[:kept], math.prod(source.shape[kept:]))
    flat = Value(f"{product.outputs[0].name}/flat", source.dtype, None, shape)
    return Node("Reshape", "", [source, target], [flat], where=product.where, module=product.module)


def _product(node: Node, product: Node, source: Value) -> list[Node]:
    """MatMul, and Add where there is a bias."""
    weight, bias = product.inputs[1], product.inputs[2] if len(product.inputs) > 2 else None
    assert weight is not None
    (result,) = node.outputs
    nodes: list[Node] = []

    def add(kind: str, inputs: list[Value | None], output: Value, **attributes: list[int]) -> Value:
        nodes.append(Node(kind, "", inputs, [output], attributes, where=product.where, module=product.module))
        return output

    if product.attributes.get("transB"):  # computed once: `ox.graph.passes.fold_parameters`
        shape = weight.shape and weight.shape[::-1]
        weight = add("Transpose", [weight], Value(f"{result.name}/weight", weight.dtype, shape, shape), perm=[1, 0])
    made = result if bias is None else Value(f"{result.name}/product", result.dtype, None, result.shape)
    add("MatMul", [source, weight], made)
    if bias is not None:
        add("Add", [made, bias], result)
    return nodes
