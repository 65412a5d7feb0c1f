"""The reference engine: each node is a call of the operator of that name. It is as fast as eager code, and never
changes a graph: what the other engines are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ox.autograd.accumulate_grad import owner
from ox.core.mode import Watch, switch_mode
from ox.core.operator import OPS, make_tensor
from ox.engines.class_check import check_classes, reads_classes
from ox.engines.engine import Array, Task
from ox.errors import ArgumentError, ShapeError
from ox.graph.ir import Node, Value
from ox.graph.replay import call, replay
from ox.tensors.tensor import Tensor


class Reference:
    """Replays graphs; `ox.compile(..., backend="eager")`."""

    name = "eager"
    writes_last = True

    def build(self, task: Task) -> Replayed:
        """Prepare a task: nothing is done ahead."""
        return Replayed(task)


class Replayed:
    """A task that is run node by node."""

    def __init__(self, task: Task) -> None:
        self.graph = task.graph
        places = {value: i for i, value in enumerate(task.graph.inputs)}
        self.updates = [None if (to := task.updates.get(y)) is None else places[to] for y in task.graph.outputs]
        self.kinds = [(v.dtype, None if v.dims is None else tuple(v.dims)) for v in task.graph.inputs]

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """The outputs. Raises ArgumentError for an input of another element type or shape than in the recording."""
        for value, (dtype, dims), array in zip(self.graph.inputs, self.kinds, arrays, strict=True):
            pairs = zip(dims or (), array.shape, strict=False)
            fits = dims is None or (len(dims) == array.ndim and all(isinstance(d, str) or d == n for d, n in pairs))
            if array.dtype != dtype or not fits:
                raise _misfit_error(value, array)
        with switch_mode(recording=None, grad=False, autocast=None):
            found = replay(self.graph, [make_tensor(array) for array in arrays], run=checked)
        made = [tensor.array for tensor in found]
        # what is returned is memory of its own: not an input's, a constant's, or that of another output
        taken = {id(owner(array)) for array in (*arrays, *self.graph.constants.values())}
        for i, array in enumerate(made):
            memory = id(owner(array))
            if memory in taken:
                made[i] = array.copy()
            taken.add(memory)
        for i, place in enumerate(self.updates):
            if place is not None:
                arrays[place][...] = made[i]
                made[i] = arrays[place]
        return made

    def watched(self, arrays: Sequence[Array], watch: Watch) -> list[Array]:
        """The same; the operators' own calls show themselves."""
        with switch_mode(watch=watch):
            return self(arrays)

    def explain(self) -> list[str]:
        """One line: how many operators run one by one."""
        return [f"{len(self.graph.nodes)} operators, one by one"]


def checked(node: Node, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    """A call of a node. Raises ShapeError for a class out of range, which the operator itself does not look for."""
    if reads_classes(node.key):
        try:
            check_classes([None if x is None else x.array for x in inputs], node.attributes)
        except ShapeError as error:
            error.where = node.place or error.where
            raise
    return call(node, _on_one_device(node, inputs))


def _on_one_device(node: Node, inputs: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    """A graph does not say where zeros, ranges and constants are made: beside tensors on a GPU they are copied there,
    but for sizes and axes, which operators read on the host."""
    there = next((x for x in inputs if x is not None and not isinstance(x.array, np.ndarray)), None)
    op = OPS.get(node.key)
    if there is None or op is None:
        return inputs
    return [
        x if x is None or not isinstance(x.array, np.ndarray) or op.schema.input_at(i).host else x.to(there.device)
        for i, x in enumerate(inputs)
    ]


def _misfit_error(value: Value, array: Any) -> ArgumentError:
    return ArgumentError(
        f"input '{value.name}' is not what the graph was recorded for",
        expected=f"{value.dtype} {list(value.dims or ())}",
        got=f"{array.dtype} {list(array.shape)}",
    )
