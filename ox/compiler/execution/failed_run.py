"""What a run that raised an error leaves behind: as eager code, the state that its operators before the error gave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ox.compiler.execution.split import Layout
from ox.core.mode import switch_mode
from ox.core.operator import make_tensor
from ox.engines.reference import checked
from ox.errors import OxError
from ox.graph.ir import Graph, Node, Value
from ox.graph.replay import replay
from ox.tensors.tensor import Tensor


def state_before_error(layout: Layout, arrays: Sequence[Any]) -> tuple[list[Tensor | None], list[tuple[int, Any]]]:
    """Runs the graph again, in the order of the code and up to the error. Writes nothing.

    Returns:
        For each generator its counter, None where it did not move; and the numbers of inputs that were written before,
        with what they hold then. Nothing at all, where no error comes again.
    """
    graph = layout.task.graph
    chains = [_chain(graph, graph.outputs[number]) for number in layout.counters]
    written = {graph.outputs[number]: place for number, place in layout.updates}
    wanted = {*written, *(value for chain in chains for value in chain)}
    found: dict[Value, Tensor] = {}

    def run(node: Node, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        made = checked(node, inputs)
        found.update((value, y) for value, y in zip(node.outputs, made, strict=False) if value in wanted)
        return made

    try:
        with switch_mode(recording=None, grad=False, autocast=None):
            replay(graph, [*map(make_tensor, arrays)], run=run)
    except OxError:
        counters = [next((found[value] for value in chain if value in found), None) for chain in chains]
        return counters, [(place, found[value].array) for value, place in written.items() if value in found]
    return [], []


def _chain(graph: Graph, value: Value) -> list[Value]:
    """The values of a counter that moves on, the last one first."""
    makers = {value: node for node in graph.nodes for value in node.outputs}
    chain: list[Value] = []
    before: Value | None = value
    while before is not None and before in makers and (before.dtype, before.dims) == (value.dtype, value.dims):
        chain.append(before)
        node = makers[before]
        place = 0 if node.op_type in ("Add", "Identity") else 1  # those that draw take the key first
        before = node.inputs[place] if place < len(node.inputs) else None
    return chain
