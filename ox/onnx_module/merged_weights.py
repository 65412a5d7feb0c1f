"""Weights that an exporter stored once because they were equal, as tensors of their own again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ox.core.kind import Kind
from ox.core.operator import OPS, kind_of
from ox.dtypes import is_floating
from ox.graph.ir import Array, Graph, Node, Value

PRODUCTS: tuple[Kind, ...] = ("product", "convolution")
SIZES = ("Shape", "Size")  # read no numbers


def separate_merged_weights(graph: Graph) -> None:
    """Copies, in place, of the scales, biases and running statistics that several layers of a file share by accident.

    Before training they are equal, ones and zeros, and some exporters store equal tensors once:
    ``BatchNormalization(x, w, b, b, w)``. Training would give all of them the same values, and running statistics would
    move scales. What layers share on purpose stays shared: a norm that is called twice has the same tensors in all
    places, other ones than just ones and zeros, and a layer that is called twice has the same weight.
    """
    captured = {v for node in graph.nodes if node.captured for v in node.inputs[-node.captured :]}
    uses = Counter(v for node in graph.nodes for v in node.inputs if v is not None)
    names = {v.name for v in graph.values()}
    layers: dict[tuple[Value, Any], Value] = {}  # by the stored tensor, and the layer and role that has it
    makers = graph.producers()
    roles = list(_roles(graph, makers))
    in_roles = Counter(value for _, _, value in roles)
    kept = {v for v, count in uses.items() if count != in_roles[v]}
    for node, place, value in roles:
        if uses[value] < 2 or value in captured or value not in graph.owned or not _is_vector(graph.constants[value]):
            continue
        role = place if node.key != "Add" else 0  # a bias stands on either side
        own = (value, (*_layer(graph, node, makers), role))
        if own not in layers and value not in kept:
            kept.add(value)
            layers[own] = value
        elif own not in layers:
            layers[own] = _copy(graph, value, names)
        node.inputs[place] = layers[own]


def shared_weights(graph: Graph) -> dict[str, int]:
    """What of a graph's own floating tensors several nodes read, and how many: weights that are tied, of a layer that
    is called again, or equal when an exporter stored them once; a file does not say which."""
    uses = Counter(v for node in graph.nodes if node.op_type not in SIZES for v in set(node.inputs) if v is not None)
    owned = {v: graph.constants[v] for v in uses if v in graph.owned}
    return {
        v.name: uses[v] for v, array in owned.items() if uses[v] > 1 and array.size > 1 and is_floating(array.dtype)
    }


def _roles(graph: Graph, makers: Mapping[Value, Node]) -> Iterator[tuple[Node, int, Value]]:
    """Each scale, bias and statistic of a layer: the layer, the place among its inputs, and the tensor."""
    for node in graph.nodes:
        places = _vectors(node)
        if node.key == "Add":
            places = tuple(i for i in (0, 1) if _product(node.inputs[1 - i], graph, makers) is not None)
        for place in places:
            value = node.inputs[place] if place < len(node.inputs) else None
            if value is not None and value in graph.constants:
                yield node, place, value


def _vectors(node: Node) -> tuple[int, ...]:
    """Which inputs of a norm are weights, and which of a product, besides its factors."""
    op = OPS.get(node.key)
    first = {"normalization": 1, "product": 2, "convolution": 2}.get(op.kind or "") if op is not None else None
    if op is None or first is None:
        return ()
    return tuple(i for i, each in enumerate(op.schema.inputs) if i >= first and each.name in op.weights)


def _product(value: Value | None, graph: Graph, makers: Mapping[Value, Node]) -> Node | None:
    """The product with a weight that makes a value: what is added to it is a bias."""
    made = makers.get(value) if value is not None else None
    return made if made is not None and made.key == "MatMul" and made.inputs[1] in graph.constants else None


def _layer(graph: Graph, node: Node, makers: Mapping[Value, Node]) -> tuple[Any, ...]:
    """Equal for nodes that are calls of one layer."""
    if kind_of(node.key) in PRODUCTS:
        return (node.inputs[1],)
    if node.key == "Add":
        return tuple(p.inputs[1] for v in node.inputs if (p := _product(v, graph, makers)) is not None)
    own = [v for v in node.inputs[1:] if v is not None]
    arrays = [graph.constants[v] for v in own if v in graph.constants]
    untrained = all(array.size and (array == array.flat[0]).all() for array in arrays)
    return (node,) if untrained or len(set(own)) < len(own) else tuple(own)


def _is_vector(array: Array) -> bool:
    return array.ndim == 1 and is_floating(array.dtype)


def _copy(graph: Graph, value: Value, names: set[str]) -> Value:
    name, k = f"{value.name}_2", 2
    while name in names:
        k += 1
        name = f"{value.name}_{k}"
    names.add(name)
    made = replace(value, name=name)
    graph.constants[made] = graph.constants[value].copy()
    graph.owned.add(made)
    return made
