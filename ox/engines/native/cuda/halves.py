"""A task in two halves: what needs nothing of the device runs on the CPU before the rest."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from ox.core.operator import OPS
from ox.engines.engine import Task
from ox.engines.native.calls import TensorCall, call_of
from ox.engines.native.fold import Folded, fold
from ox.graph.ir import Array, Graph, Node, Value

DRAWS = ("ox.RandomUniform", "ox.RandomNormal")


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
    draws = _draws_of_device(task, folded, there)
    nodes: list[Node] = []
    of_host: list[Node] = []
    for node in folded.nodes:
        if node in draws:
            nodes.append(replace(node, outputs=node.outputs[:1]))
            there.add(node.outputs[0])
            of_host.append(_next_counter(node, folded))
        elif any(v in there for v in node.inputs):
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


def _draws_of_device(task: Task, folded: Folded, there: set[Value]) -> set[Node]:
    """The nodes that draw random numbers of a known shape which the device reads, as they are or after operators that
    can run there. Only their keys and counters come from the host then."""
    there, device = set(there), set[Node]()
    readers: dict[Value, list[tuple[Node, int]]] = defaultdict(list)
    for node in folded.nodes:
        for i, v in enumerate(node.inputs):
            if v is not None:
                readers[v].append((node, i))
        if any(v in there for v in node.inputs):
            device.add(node)
            there.update(node.outputs)

    def stays_on_host(v: Value) -> bool:
        """Whether it is a result or a state of the host, or read there."""
        if any(is_read_on_host(node, i) for node, i in readers[v]):
            return True
        if v in task.updates:
            return task.updates[v] not in there
        # what is saved for a backward lay where it is read; a number need not
        read_there = bool(v.shape) and any(node in device for node, _ in readers[v])
        return v in task.graph.outputs and not task.on_device.get(v, read_there)

    def runs_there(node: Node, drawn: list[Value]) -> bool:
        """Whether an operator can run on the device, for which no large array of the host has to go there."""
        if isinstance(call_of(node), TensorCall) or OPS[node.key].random:
            return False
        return all(v is None or v in drawn or v in folded.constants or not v.shape for v in node.inputs)

    def ends_on_device(drawn: Value) -> bool:
        pending = [drawn]
        for v in pending:
            if stays_on_host(v):
                return False
            for node, _ in readers[v]:
                if node not in device:
                    if not runs_there(node, pending):
                        return False
                    pending += [y for y in node.outputs if y not in pending]
        return True

    found = set()
    for node in folded.nodes:
        if node.key in DRAWS and node not in device and node.inputs[2] in folded.constants:
            sizes = folded.sizes.get(node.outputs[0])
            if sizes is not None and 0 not in sizes and ends_on_device(node.outputs[0]):
                found.add(node)
    return found


def _next_counter(node: Node, folded: Folded) -> Node:
    """The second output of a node that draws, without the first."""
    blocks = Value(f"{node.outputs[0].name}/blocks", np.dtype(np.uint64), (), ())
    folded.constants[blocks] = np.array((prod(folded.sizes[node.outputs[0]]) + 3) // 4, np.uint64)
    return Node("Add", "", [node.inputs[1], blocks], node.outputs[1:2], where=node.where, module=node.module)


def is_read_on_host(node: Node, position: int) -> bool:
    """Whether an operator reads an input on the host: a shape, an axis."""
    op = OPS.get(node.key)
    return op is not None and op.schema.input_at(position).host
