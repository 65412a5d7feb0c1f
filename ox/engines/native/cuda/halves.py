"""A task in two halves: what needs nothing of the device runs on the CPU before the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ox.core.operator import OPS
from ox.engines.engine import Task
from ox.engines.native.fold import fold
from ox.graph.ir import Array, Graph, Node, Value


@dataclass(frozen=True)
class Halves:
    """The host's half, whose outputs are values that the device reads, then outputs of the task; and the device's."""

    host: Task
    handed_on: list[Value]  # what the device reads of the host's outputs and inputs
    nodes: list[Node]  # of the device, in the order of the graph
    constants: dict[Value, Array]
    sizes: dict[Value, tuple[int, ...]]
    on_device: set[Value]  # the task's inputs and constants that lie there, and what its nodes give


def split(task: Task, on_device: set[Value]) -> Halves:
    """Split a task. The graph stays as it is.

    Args:
        on_device: the inputs that lie there.
    """
    graph = task.graph
    folded = fold(graph)
    of_device = {v for v, array in folded.constants.items() if not isinstance(array, np.ndarray)}
    there = on_device | of_device
    nodes: list[Node] = []
    of_host: list[Node] = []
    for node in folded.nodes:
        if any(v in there for v in node.inputs):
            nodes.append(node)
            there.update(node.outputs)
        else:
            of_host.append(node)
    made = {v for node in of_host for v in node.outputs}
    known = made | (set(graph.inputs) - on_device)
    read = {v: None for node in nodes for v in node.inputs if v is not None and v in known}
    outputs = [v for v in graph.outputs if v in made]
    # a value that the device reads and that is an output of the task is given once
    given = [v for v in read if v in made and v not in outputs]
    inputs = [v for v in graph.inputs if v not in on_device]
    host = Graph(
        inputs,
        [*given, *outputs],
        of_host,
        {v: a for v, a in folded.constants.items() if v not in of_device},
        graph.owned,
    )
    updates = {new: state for new, state in task.updates.items() if new in made and state in inputs}
    return Halves(Task(host, updates), list(read), nodes, folded.constants, folded.sizes, there)


def is_read_on_host(node: Node, position: int) -> bool:
    """Whether an operator reads an input on the host: a shape, an axis."""
    op = OPS.get(node.key)
    return op is not None and op.schema.input_at(position).host
