"""The recorded graph as tasks for an engine: what runs at the call, and what runs in its backward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ox.compiler.recording.trace import Trace
from ox.engines.engine import Task
from ox.graph.ir import Graph, Node, Value
from ox.graph.passes.cleanup import remove_dead
from ox.graph.passes.recompute import choose, size_of


@dataclass(eq=False)
class Layout:
    """Which output of the task is what, by number.

    `saved` lists, for each input of the backward after the cotangents, where its array is: ("input", number) or
    ("output", number) of the forward.
    """

    task: Task
    results: list[int] = field(default_factory=list)
    updates: list[tuple[int, int]] = field(default_factory=list)  # output, input
    grads: list[int] = field(default_factory=list)
    counters: list[int] = field(default_factory=list)
    backward: Task | None = None
    saved: list[tuple[str, int]] = field(default_factory=list)
    recomputed: list[Node] = field(default_factory=list)


class _Outputs:
    """Collects the outputs of a graph; each has its own node."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._ends = {*graph.inputs, *graph.constants}

    def add(self, value: Value) -> int:
        """The number of the next output, which is `value`."""
        if value in self._ends:
            made = replace(value, name=f"{value.name}_{len(self.graph.outputs)}_out")
            self.graph.nodes.append(Node("Identity", "", [value], [made]))
            value = made
        self._ends.add(value)
        self.graph.outputs.append(value)
        return len(self.graph.outputs) - 1


def split(trace: Trace, budget: float = 1.0) -> Layout:
    """The tasks of a recording. In-place updates belong to the first one, and so does everything without a backward.

    Args:
        budget: the share of the bytes of intermediate values that may be kept for the backward; 1 keeps all that it
            reads. For less, cheap operators run again there (`ox.graph.passes.recompute`).
    """
    inputs = [*trace.arguments, *[state.value for state in trace.states]]
    nodes, later = trace.graph.nodes[: trace.forward], trace.graph.nodes[trace.forward :]
    graph = Graph(list(inputs), [], list(nodes), _constants(trace, nodes))
    outputs, layout = _Outputs(graph), Layout(Task(graph))
    of_value: dict[Value, int] = {}
    for result in trace.results:
        if result[0] in ("output", "freed"):
            value = result[1]
            if value not in of_value:
                of_value[value] = outputs.add(value)
            layout.results.append(of_value[value])
        else:
            layout.results.append(-1)
    places = {value: i for i, value in enumerate(inputs)}
    for new, old in trace.updates:
        number = outputs.add(new)
        layout.updates.append((number, places[old]))
        layout.task.updates[graph.outputs[number]] = old
    layout.grads = [-1 if g.value is None else outputs.add(g.value) for g in trace.grads]
    layout.counters = [outputs.add(value) for _, value in trace.counters]
    if trace.gradients:
        overwritten = {old for _, old in trace.updates}
        free = {*of_value, *(v for v in inputs if v not in overwritten), *trace.graph.constants}
        layout.recomputed = _recomputed(graph.nodes, later, free, budget)
        _backward(trace, [*layout.recomputed, *later], layout, outputs, of_value, places)
    remove_dead(graph)
    return layout


def _recomputed(nodes: Sequence[Node], later: Sequence[Node], free: set[Value], budget: float) -> list[Node]:
    """Copies of the nodes of the forward that run again in the backward, in order."""
    if budget >= 1:
        return []
    made = {v for node in nodes for v in node.outputs}
    wanted = list(dict.fromkeys(v for node in later for v in node.inputs if v in made))
    whole = sum(size_of(v) for v in wanted if v not in free)
    choice = choose(nodes, [v for v in wanted if v is not None], free, int(budget * whole))
    return [replace(n, inputs=list(n.inputs), attributes=dict(n.attributes)) for n in choice.recomputed]


def _constants(trace: Trace, nodes: Sequence[Node]) -> dict[Value, Any]:
    used = {v for node in nodes for v in node.inputs}
    used |= {value for result in trace.results if result[0] in ("output", "freed") for value in result[1:2]}
    used |= {new for new, _ in trace.updates} | {g.value for g in trace.grads if g.value is not None}
    return {value: array for value, array in trace.graph.constants.items() if value in used}


def _backward(
    trace: Trace,
    nodes: Sequence[Node],
    layout: Layout,
    outputs: _Outputs,
    of_value: dict[Value, int],
    places: dict[Value, int],
) -> None:
    """The second graph, and what the first one hands on to it: also values that it overwrites."""
    graph = Graph(list(trace.cotangents), [], list(nodes), {})
    ends = _Outputs(graph)
    for _, gradient, _ in trace.gradients:
        ends.add(gradient)
    own = {v for node in nodes for v in node.outputs}
    needed = {v for node in graph.nodes for v in node.inputs if v is not None and v not in own}
    graph.constants = {v: a for v, a in trace.graph.constants.items() if v in needed}
    remove_dead(graph)
    overwritten = {old for _, old in trace.updates}
    taken = set(graph.inputs) | set(graph.constants)
    for node in graph.nodes:
        for value in node.inputs:
            if value is None or value in taken or value in own:
                continue
            taken.add(value)
            graph.inputs.append(value)
            if value in places and value not in overwritten:
                layout.saved.append(("input", places[value]))
                continue
            if value not in of_value:
                of_value[value] = outputs.add(value)
            layout.saved.append(("output", of_value[value]))
    layout.backward = Task(graph)
