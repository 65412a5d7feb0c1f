"""Random numbers of a task, drawn by ox's kernels before each run, for a runtime without integers of 64 bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ox.autograd.grad_mode import no_grad
from ox.core.operator import OPS, make_tensor
from ox.dtypes import uint32, uint64
from ox.engines.engine import Array, Executable, Task
from ox.graph.ir import Graph, Node, Value
from ox.graph.passes.common_subexpressions import merge_common_subexpressions
from ox.graph.passes.sizes import fixed_values, fold_fixed_sizes
from ox.graph.replay import replay


@dataclass(frozen=True)
class Ahead:
    """What is drawn: a graph from some inputs of the task to values that the rest reads, then results of the task."""

    graph: Graph
    reads: list[int]  # inputs of the task
    handed_on: int  # how many of its outputs the rest reads
    # for each of its other outputs: which of the task's, and the state that it is
    results: list[tuple[int, int | None]]

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """Its outputs."""
        with no_grad():
            return [t.array for t in replay(self.graph, [make_tensor(arrays[i]) for i in self.reads])]


class DrawnAhead:
    """An executable behind the drawing of its random numbers."""

    def __init__(self, ahead: Ahead, rest: Executable, outputs: int) -> None:
        self.ahead, self.rest, self._outputs = ahead, rest, outputs
        taken = {i for i, _ in ahead.results}
        self._places = [i for i in range(outputs) if i not in taken]  # of what the rest gives

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """The outputs of the task, in order; errors as those of the executable."""
        drawn = self.ahead.run(arrays)
        results: list[Array] = [None] * self._outputs
        for i, array in zip(self._places, self.rest([*arrays, *drawn[: self.ahead.handed_on]]), strict=True):
            results[i] = array
        for (i, place), array in zip(self.ahead.results, drawn[self.ahead.handed_on :], strict=True):
            if place is not None:
                np.copyto(arrays[place], array)
            results[i] = array.copy() if place is None else arrays[place]
        return results

    def explain(self) -> list[str]:
        """The lines of the executable, and how much is drawn ahead."""
        return [*self.rest.explain(), f"{len(self.ahead.graph.nodes)} operators draw random numbers ahead"]


def split(task: Task) -> tuple[Task, Ahead | None]:
    """The task without its random numbers, which are further inputs, and how these are drawn. Building has no effect on
    the graph of the task; where nothing is random, it is returned as it is."""
    if not any(_draws(node) for node in task.graph.nodes):
        return task, None
    graph = task.graph.copy()
    places = {v: i for i, v in enumerate(task.graph.inputs)}
    of = dict(zip(task.graph.outputs, graph.outputs, strict=True))
    updates = {of[y]: graph.inputs[places[x]] for y, x in task.updates.items()}
    fold_fixed_sizes(graph)  # by how much a dropout moves the counter is computed from the size of what comes before it
    graph.nodes = [made for node in graph.nodes for made in _separate(node, graph)]
    merge_common_subexpressions(graph)
    ahead = _drawn(graph)
    made = {v for node in ahead for v in node.outputs}
    rest = [node for node in graph.nodes if node not in ahead]
    read = {v for node in rest for v in node.inputs}
    handed_on = [v for node in ahead for v in node.outputs if v in read]
    results = [(i, v) for i, v in enumerate(graph.outputs) if v in made]
    used = {v for node in ahead for v in node.inputs}
    reads = [i for i, v in enumerate(graph.inputs) if v in used]
    constants = {v: a for v, a in graph.constants.items() if v in used}
    drawing = Graph([graph.inputs[i] for i in reads], [*handed_on, *(v for _, v in results)], list(ahead), constants)
    states = {v: i for i, v in enumerate(graph.inputs)}
    found = Ahead(
        drawing, reads, len(handed_on), [(i, states[updates[v]] if v in updates else None) for i, v in results]
    )
    kept = [v for v in graph.outputs if v not in made]
    remaining = Graph([*graph.inputs, *handed_on], kept, rest, graph.constants, graph.owned)
    for v in handed_on:
        v.dims = v.shape
    return Task(remaining, {y: x for y, x in updates.items() if y not in made}), found


def _draws(node: Node) -> bool:
    """Whether a node draws numbers that follow from a key and a counter."""
    op = OPS.get(node.key)
    return op is not None and op.kind == "random" and not op.random


def _separate(node: Node, graph: Graph) -> list[Node]:
    """A dropout of sizes that no run changes as a product with what a dropout makes of ones."""
    x = node.inputs[0] if node.key == "ox.PhiloxDropout" else None
    if x is None or x.shape is None or x not in fixed_values(graph):
        return [node]
    ones = Value(f"{node.outputs[0].name}/ones", x.dtype, x.shape, x.shape)
    graph.constants[ones] = np.ones(x.shape, x.dtype)
    factors = Value(f"{node.outputs[0].name}/factors", x.dtype, None, x.shape)
    drawn = Node(node.op_type, node.domain, [ones, *node.inputs[1:]], [factors], node.attributes, "", node.where)
    drawn.module = node.module
    return [drawn, Node("Mul", "", [x, factors], node.outputs, {}, where=node.where, module=node.module)]


def _drawn(graph: Graph) -> dict[Node, None]:
    """The nodes that draw, and what they need: those that read only inputs, numbers and each other."""
    known = {*graph.inputs, *graph.constants}
    found: dict[Node, None] = {}
    for node in graph.nodes:
        wide = any(v.dtype in (uint32, uint64) for v in node.outputs)
        if (wide or _draws(node)) and all(v is None or v in known for v in node.inputs):
            found[node] = None
            known.update(node.outputs)
    return found
