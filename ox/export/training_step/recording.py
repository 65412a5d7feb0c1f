"""The graph of a training step: recorded at two batch sizes, with what does not change inside as initializers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ox.errors import ExportError
from ox.export.example_inputs import Example
from ox.export.training_step.layout import LOSS, RANDOM_COUNTER, RANDOM_KEY, following
from ox.export.training_step.step import Step
from ox.export.two_sizes import Subject, record_twice
from ox.graph.ir import Array, Graph, Value
from ox.graph.passes.cleanup import remove_dead
from ox.graph.passes.shape_inference import simplify
from ox.graph.writer.names import rename
from ox.graph.writer.workarounds import between_casts, mixed_bfloat16


@dataclass(frozen=True)
class StepExample(Example):
    """A batch, and the state of a step, whose sizes are fixed."""

    batch_inputs: tuple[str, ...] = ()

    @property
    def batch(self) -> str | None:
        """The name of the first dimension of every input of the batch; None where there are several."""
        only = {name: self.dims[name] for name in self.batch_inputs}
        return Example({name: self.arrays[name] for name in only}, only, None).batch


def record_step(step: Step, example: Example, before: Mapping[str, Array], opset: int | None) -> Graph:
    """The graph of a step: from (batch, learning rates, state) to (loss, metrics, next state).

    Args:
        example: the batch.
        before: the learning rates and the state, by name.

    Raises:
        ExportError: a step that cannot be recorded, or one that is not the same at every batch size; a ScatterND that
            adds, which ONNX Runtime computes wrong on several threads.
    """
    arrays = {**example.arrays, **before}
    dims = {**example.dims, **{name: array.shape for name, array in before.items()}}
    names = step.inputs
    whole = StepExample({n: arrays[n] for n in names}, {n: dims[n] for n in names}, None, batch_inputs=step.batch)
    state = step.state
    restored = {**state.tensors, **{f"lr.{i}": g.tensors["lr"] for i, g in enumerate(state.optimizer.param_groups)}}
    graph = record_twice(Subject(step, whole, state.fixed, None, tuple(restored.values())))
    keep_constants(graph, step, before)
    return clean(graph, opset)


def clean(graph: Graph, opset: int | None) -> Graph:
    """The graph as a file has it: simplified, with sizes and names.

    Raises:
        ExportError: a ScatterND that adds, which ONNX Runtime computes wrong on several threads.
    """
    for node in graph.all_nodes():
        if node.key == "ScatterND" and node.attributes.get("reduction", "none") != "none":
            raise ExportError(
                "the step has a ScatterND that adds, which ONNX Runtime computes wrong on several threads",
                where=node.place or None,
                hint="index_add or scatter_add, which become ScatterElements",
            )
    if mixed_bfloat16(graph):
        graph = between_casts(graph)
    inferred = simplify(graph, opset)
    sizes = {following(v.name): v.dims for v in graph.inputs}
    for value in graph.outputs:
        found = inferred.get(value.name) or (None,) * len(value.shape or ())
        value.dims = sizes.get(value.name) or tuple("?" if size is None else size for size in found)
    rename(graph)
    return graph


def keep_constants(graph: Graph, step: Step, before: Mapping[str, Array]) -> None:
    """Make initializers of inputs that the step leaves as they are, and drop those that it does not read."""
    inputs, outputs = ({v.name: v for v in values} for values in (graph.inputs, graph.outputs))
    producers = graph.producers()
    same: dict[str, Value] = {}
    for name in [*step.state.tensors, RANDOM_COUNTER]:
        node = producers[outputs[following(name)]]
        if node.key == "Identity" and node.inputs[0] is inputs[name]:
            same[name] = inputs[name]
    if RANDOM_COUNTER in same:
        same[RANDOM_KEY] = inputs[RANDOM_KEY]
    gone = {following(name) for name in same}
    graph.outputs = [v for v in graph.outputs if v.name not in gone]
    for name, value in same.items():
        graph.inputs.remove(value)
        graph.constants[value] = before[name]
        graph.owned.add(value)
    drop_unread(graph)  # also the learning rate of Rprop, whose first step sizes are made of it
    if not any(v.name.endswith(".next") for v in graph.outputs):
        raise ExportError("the step changes nothing", expected=f"new parameters besides '{LOSS}'")


def drop_unread(graph: Graph) -> None:
    """Remove inputs that no node reads."""
    remove_dead(graph)
    read = {v for node in graph.nodes for v in node.inputs}
    graph.inputs = [v for v in graph.inputs if v in read]
