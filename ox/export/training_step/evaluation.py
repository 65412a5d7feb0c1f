"""The evaluation beside a training step: loss, metrics and outputs in eval mode, for the parameters of any step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ox.autograd.grad_mode import no_grad
from ox.core.operator import make_tensor
from ox.core.tensor import is_tensor
from ox.export.example_inputs import Example
from ox.export.proof import Case
from ox.export.training_step.layout import LOSS
from ox.export.training_step.proof import proof_sizes
from ox.export.training_step.recording import StepExample, clean, drop_unread
from ox.export.training_step.state import overwrite
from ox.export.training_step.step import Step
from ox.export.two_sizes import Subject, arrays_of, record_twice
from ox.graph.ir import Array, Graph
from ox.graph.record.outputs import named_outputs
from ox.tensors.tensor import Tensor


class Evaluation:
    """Loss, metrics and outputs of a batch, from parameters and buffers, in eval mode."""

    def __init__(self, step: Step, changed: Collection[str], names: Sequence[str] | None) -> None:
        self.step, self.names = step, names
        state: dict[str, Tensor] = {**step.state.fixed, **step.state.parameters, **step.state.buffers}
        self.tensors = {name: tensor for name, tensor in state.items() if name in changed}
        self.fixed = {name: tensor for name, tensor in state.items() if name not in changed}
        self.inputs = [*step.batch, *self.tensors]

    def __call__(self, *given: Tensor) -> dict[str, Tensor]:
        count = len(self.step.batch)
        overwrite(self.tensors, dict(zip(self.tensors, given[count:], strict=True)))
        with no_grad():
            loss, outputs = self.step.forward(*given[:count])
            results = {LOSS: loss.reshape(()), **self.step.measured(outputs, given[self.step.target])}
        return {**named_outputs(found, self.names), **results} if (found := _tensors(outputs)) else results


def _tensors(outputs: Any) -> Any:
    """The tensors among what a model returned: other values are no outputs of a file."""
    if isinstance(outputs, Mapping):
        return {name: value for name, value in outputs.items() if is_tensor(value)}
    several = outputs if isinstance(outputs, tuple | list) else [outputs]
    return [value for value in several if is_tensor(value)]


def record_evaluation(
    step: Step,
    changed: Collection[str],
    names: Sequence[str] | None,
    example: Example,
    before: Mapping[str, Array],
    opset: int | None,
) -> tuple[Graph, list[Case]]:
    """The graph of an evaluation, and eager runs at two batch sizes to prove it by. Leaves the modules in eval mode.

    Args:
        changed: the names of what the step changes; other parameters and buffers are initializers.
        names: of the outputs of the model.
    """
    for module in step.state.modules.values():
        module.eval()
    run = Evaluation(step, changed, names)
    arrays = {**example.arrays, **{name: before[name] for name in run.tensors}}
    dims = {**example.dims, **{name: arrays[name].shape for name in run.tensors}}
    whole = StepExample(arrays, dims, None, batch_inputs=step.batch)
    graph = record_twice(Subject(run, whole, run.fixed, None, tuple(run.tensors.values())))
    drop_unread(graph)
    graph = clean(graph, opset)
    read = [v.name for v in graph.inputs]
    cases = []
    for rows, sizes in proof_sizes(example):
        feed = whole.cut(sizes)
        results = arrays_of(run(*(make_tensor(np.array(feed[name])) for name in run.inputs)))
        cases.append(Case(rows, {name: feed[name] for name in read}, results))
    return graph, cases
