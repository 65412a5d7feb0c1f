"""Every operator on the native engine gives what an eager call gives, on the samples of its own tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
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


def task_of_sample(name: str, sample: Sample, expected: list[Any], constants: bool) -> tuple[Task, list[Any]]:
    op, inputs, given, known = OPS[name], [], [], {}
    for i, x in enumerate(sample.inputs):
        if x is None:
            inputs.append(None)
            continue
        array = np.asarray(x)
        value = Value(f"in{i}", array.dtype, array.shape, array.shape)
        inputs.append(value)
        if constants and op.schema.input_at(i).host:
            known[value] = array
        else:
            given.append((value, array))
    outputs = [Value(f"out{i}", a.dtype, a.shape, a.shape) for i, a in enumerate(expected)]
    node = Node(op.name, op.domain, inputs, outputs, {**op.schema.attributes, **sample.attributes})
    return Task(Graph([v for v, _ in given], outputs, [node], known)), [array for _, array in given]


@pytest.mark.parametrize("constants", AS_CONSTANTS)
@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_eager_operator(name: str, constants: bool) -> None:
    for sample in samples_of(name):
        with no_grad():
            inputs = [None if x is None else make_tensor(np.asarray(x)) for x in sample.inputs]
            made = OPS[name](*inputs, outputs=sample.outputs, **sample.attributes)
        expected = [y.array for y in (made if isinstance(made, tuple) else (made,))]
        task, arrays = task_of_sample(name, sample, expected, constants)
        executable = Native().build(task)
        for _ in range(2):
            before = [array.copy() for array in arrays]
            got = executable(arrays)
            for one, want in zip(got, expected, strict=True):
                assert not any(np.may_share_memory(one, array) for array in arrays)
                difference = tolerance.compare(one, want)
                assert difference.ok, f"{[None if x is None else np.shape(x) for x in sample.inputs]}: {difference}"
            for array, kept in zip(arrays, before, strict=True):
                np.testing.assert_array_equal(array, kept)
            arrays = [array.copy() for array in arrays]
