"""Which constants of a file are weights: those in Constant nodes become what the model owns, and some can learn."""

from __future__ import annotations

from ox.core.kind import MOVEMENT, QUANTIZED, Kind
from ox.core.operator import OPS, kind_of
from ox.dtypes import is_floating
from ox.graph.ir import Graph, Node, Value

PRODUCTS: tuple[Kind, ...] = ("product", "convolution")
# a weight may go through these first; what is repeated is as often a number of the code that fills a tensor
PASS_THROUGH = (MOVEMENT - {"repetition"}) | {"conversion"}


def constants_to_weights(graph: Graph) -> None:
    """Make the floating constants that feed an operator as its weights owned by the graph, those of subgraphs too."""
    taken = {v.name for v in graph.values()}
    graph.owned.update(v for v in _weights(graph, taken) if v in graph.constants)


def trainable_weights(graph: Graph) -> set[Value]:
    """What of a graph's own can learn: floating, where a gradient reaches it on the way from an output. A tensor of one
    element is a setting (an epsilon, a bound, an exponent), unless a layer takes it as its weight or bias."""
    weights = _weights(graph, {v.name for v in graph.values()})
    floating = {v for v in graph.owned if is_floating(graph.constants[v].dtype)}
    return {v for v in floating & _reached(graph) if graph.constants[v].size != 1 or v in weights}


def quantized_weights(graph: Graph) -> dict[str, int]:
    """How many elements of a graph's weights are integers, by element type. Those of one dimension are zero points and
    biases."""
    counts: dict[str, int] = {}
    seen: set[Value] = set()
    for node in graph.all_nodes():
        for v in node.inputs if kind_of(node.key) in QUANTIZED else ():
            array = graph.constants.get(v) if v is not None and v not in seen else None
            if v is not None and array is not None and array.ndim > 1 and not is_floating(array.dtype):
                seen.add(v)
                counts[str(array.dtype)] = counts.get(str(array.dtype), 0) + array.size
    return counts


def _reached(graph: Graph) -> set[Value]:
    """The values that a gradient reaches from the outputs. It goes past an operator that has none at all, such as
    ArgMax, to what was computed: the file is trained on what comes before."""
    reached = set(graph.outputs)
    for node in reversed(graph.nodes):
        op = OPS.get(node.key)
        if kind_of(node.key) in QUANTIZED:
            continue
        if op is None or not op.rules:
            reached.update(v for v in node.inputs if v is not None and v not in graph.constants)
            continue
        if reached.isdisjoint(node.outputs):
            continue
        places = {place for rule in op.rules for place in rule.positions}
        rest = min((rule.positions[0] for rule in op.rules if rule.variadic), default=len(node.inputs))
        own = len(node.inputs) - node.captured
        for i, v in enumerate(node.inputs[:own]):
            setting = v in graph.constants and op.schema.input_at(i).name in op.settings
            if v is not None and not setting and (i in places or i >= rest):
                reached.add(v)
        for _, inside in node.subgraphs():
            found = _reached(inside)
            outside = zip(inside.captures, node.inputs[own:], strict=True)
            reached.update(v for capture, v in outside if v is not None and capture in found)
    return reached


def _weights(graph: Graph, taken: set[str]) -> set[Value]:
    """The constants and captures of a graph that are weights; those of its subgraphs are lifted into it.

    Args:
        taken: names that the whole model's graph has.
    """
    producers = graph.producers()
    found: set[Value] = set()
    for node in graph.nodes:
        for _, inside in node.subgraphs():
            for v in _weights(inside, taken):
                place = len(node.inputs) - len(inside.captures)
                outer = _lifted(node, inside, v, taken, graph) if v in inside.constants else None
                if v in inside.captures and outer is None:
                    outer = node.inputs[place + inside.captures.index(v)]
                if outer is not None:
                    found.update(_sources(outer, producers))
        for i, value in enumerate(node.inputs):
            if value is not None and _is_weight(node, i, producers):
                found.update(_sources(value, producers))
    ends = set(graph.captures)
    return {v for v in found if v in ends or (v in graph.constants and is_floating(graph.constants[v].dtype))}


def _lifted(node: Node, inside: Graph, value: Value, taken: set[str], graph: Graph) -> Value:
    """A constant of a subgraph as one of the graph around it, which the subgraph captures."""
    name, k = value.name, 1
    while name in taken:
        name, k = f"{value.name}_{k}", k + 1
    taken.add(name)
    outer = Value(name, value.dtype, value.dims, value.shape)
    graph.constants[outer] = inside.constants.pop(value)
    for _, each in node.subgraphs():
        each.captures.append(value if each is inside else Value(name, value.dtype, value.dims, value.shape))
    node.inputs.append(outer)
    return outer


def _is_weight(node: Node, i: int, producers: dict[Value, Node]) -> bool:
    if node.domain:
        return False
    op = OPS.get(node.key)
    if op is not None and op.weights:
        return op.schema.input_at(i).name in op.weights
    if node.op_type != "Add":
        return False
    # a bias; one number alone is as often one of the code
    value, other = node.inputs[i], node.inputs[1 - i] if len(node.inputs) == 2 else None
    made = producers.get(other) if other is not None else None
    return made is not None and kind_of(made.key) in PRODUCTS and value is not None and value.shape != ()


def _sources(value: Value, producers: dict[Value, Node]) -> set[Value]:
    """What a value is made of, where it was only moved about; itself where it was computed."""
    found: set[Value] = set()
    waiting = [value]
    while waiting:
        v = waiting.pop()
        made = producers.get(v)
        kind = kind_of(made.key) if made is not None else None
        if made is None or kind not in PASS_THROUGH:
            found.add(v)
            continue
        waiting += [x for x in (made.inputs if kind == "concatenation" else made.inputs[:1]) if x is not None]
    return found
