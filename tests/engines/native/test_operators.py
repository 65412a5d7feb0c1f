"""Every operator on the native engine gives what an eager call gives, on the samples of its own tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from rows import rows
from samples import FUNCTIONS, Sample, samples

from ox import no_grad, tolerance
from ox.core.operator import OPS
from ox.core.subgraph import Control
from ox.engines.engine import Task
from ox.engines.native import Native
from ox.graph.ir import Graph, Node, Value
from ox.ops.control.sequence import OfSequences
from ox.tensors.tensor import make_tensor

# Those that take no arrays have tests of their own, and so have random numbers
NAMES = sorted(
    name
    for name, op in OPS.items()
    if not op.random and not isinstance(op, (Control, OfSequences)) and op.schema.inputs and name != "Constant"
)
AS_CONSTANTS = [False, True]  # whether shapes, axes and the like are numbers of the graph


def samples_of(name: str) -> list[Sample]:
    try:
        return FUNCTIONS[name]() if name in FUNCTIONS else samples(name)
    except KeyError:
        return []


def eager(name: str, sample: Sample) -> list[Any]:
    with no_grad():
        inputs = [None if x is None else make_tensor(np.asarray(x)) for x in sample.inputs]
        made = OPS[name](*inputs, outputs=sample.outputs, **sample.attributes)
    return [y.array for y in (made if isinstance(made, tuple) else (made,))]


def task_of_samples(
    name: str, calls: list[Sample], expected: list[list[Any]], constants: bool
) -> tuple[Task, list[Any]]:
    """All calls as one graph, which is compiled once, and the arrays of its inputs."""
    op, graph, arrays = OPS[name], Graph(), []
    for sample, results in zip(calls, expected, strict=True):
        inputs: list[Value | None] = []
        for i, x in enumerate(sample.inputs):
            if x is None:
                inputs.append(None)
                continue
            array = np.asarray(x)
            value = Value("in", array.dtype, array.shape, array.shape)
            inputs.append(value)
            if constants and op.schema.input_at(i).host:
                graph.constants[value] = array
            else:
                graph.inputs.append(value)
                arrays.append(array)
        outputs = [Value("out", a.dtype, a.shape, a.shape) for a in results]
        attributes = {**op.schema.attributes, **sample.attributes}
        graph.nodes.append(Node(op.name, op.domain, inputs, outputs, attributes))
        graph.outputs += outputs
    return Task(graph), arrays


@rows("constants", AS_CONSTANTS, items=24)
@rows("name", NAMES)
def test_it_is_the_eager_operator(name: str, constants: bool) -> None:
    calls = samples_of(name)
    expected = [eager(name, sample) for sample in calls]
    task, arrays = task_of_samples(name, calls, expected, constants)
    executable = Native().build(task)
    for _ in range(2):
        before = [array.copy() for array in arrays]
        for i, (got, want) in enumerate(zip(executable(arrays), [y for ys in expected for y in ys], strict=True)):
            assert not any(np.may_share_memory(got, array) for array in arrays)
            difference = tolerance.compare(got, want)
            assert difference.ok, f"output {i} of {name}: {difference}"
        for array, kept in zip(arrays, before, strict=True):
            assert array.tobytes() == kept.tobytes()  # of narrow floats, NumPy compares no NaN
        arrays = [array.copy() for array in arrays]
