"""Functions of the domain ``ox``: the fast kernel, the body in operators, and ONNX Runtime give the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from rows import rows
from samples import FUNCTIONS, Sample

from ox import devices
from ox.autograd import gradcheck
from ox.core.operator import OPS
from ox.dtypes import float32, float64
from ox.graph.record.recording import record
from ox.graph.writer.write import to_model
from ox.tensors.tensor import make_tensor
from ox.tolerance import compare

# (a factorization has no body, and refuses to be recorded)
NAMES = sorted(name for name, op in OPS.items() if op.domain and hasattr(op, "body"))

# No finite difference can be taken at their samples, for these reasons.
NOT_SMOOTH = {
    "ox.BinaryCrossEntropy": "the samples reach the ends of the domain",
    "ox.Cholesky": "it reads one triangle; its gradient is symmetric, like that of PyTorch",
    "ox.GRUGates": "tests/ops/test_gradients.py tests it as a part of GRU",
    "ox.Hypot": "the samples are as large as float32 can be",
    "ox.LSTMGates": "tests/ops/test_gradients.py tests it as a part of LSTM",
    "ox.Ndtri": "the samples reach the ends of the domain",
}


def outputs_of(result: Any) -> list[np.ndarray[Any, Any]]:
    return [y.array for y in (result if isinstance(result, tuple) else (result,))]


def by_body(name: str, sample: Sample) -> list[np.ndarray[Any, Any]]:
    body: Any = OPS[name]
    with devices.forced("numpy"):
        return outputs_of(
            body.body(*(None if x is None else make_tensor(x) for x in sample.inputs), **sample.attributes)
        )


def by_kernel(name: str, sample: Sample) -> list[np.ndarray[Any, Any]]:
    with devices.forced("numpy"):
        return outputs_of(OPS[name](*sample.inputs, outputs=sample.outputs, **sample.attributes))


def by_onnxruntime(name: str, sample: Sample) -> list[np.ndarray[Any, Any]]:
    schema = OPS[name].schema
    tensors = [None if x is None else make_tensor(x) for x in sample.inputs]
    given = [i for i, x in enumerate(tensors) if x is not None and not schema.input_at(i).host]

    def step(*inputs: Any) -> Any:
        own = list(tensors)
        for i, x in zip(given, inputs, strict=True):
            own[i] = x
        result = OPS[name](*own, outputs=sample.outputs, **sample.attributes)
        return list(result) if isinstance(result, tuple) else [result]

    model = to_model(record(step, {f"in{i}": tensors[i] for i in given}))  # type: ignore[misc]
    # a fused function is for eager speed alone: a recording sees its body
    assert bool(model.functions) is not OPS[name].fused, "a function is written as a model-local function"
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {f"in{i}": sample.inputs[i] for i in given}))


@rows("name", NAMES, items=2)
def test_kernel_is_body_is_onnxruntime(name: str) -> None:
    assert name in FUNCTIONS, f"write samples for {name} in tests/ops/samples.py"
    for sample in FUNCTIONS[name]():
        expected = by_body(name, sample)
        for got in (by_kernel(name, sample), by_onnxruntime(name, sample)):
            for a, b in zip(got, expected, strict=True):
                difference = compare(a, b)
                assert difference.ok, f"{name} {list(b.shape)}: off by {difference.max_abs}"


@rows("name", NAMES)
def test_forced_onnxruntime_runs_the_body(name: str) -> None:
    sample = FUNCTIONS[name]()[0]
    with devices.forced("onnxruntime"):
        try:
            got = outputs_of(OPS[name](*sample.inputs, outputs=sample.outputs, **sample.attributes))
        except devices.NoKernelError:
            pytest.skip("an operator of the body has no kernel there")
    for a, b in zip(got, by_body(name, sample), strict=True):
        assert compare(a, b).ok


def in_float64(name: str, sample: Sample) -> list[Any]:
    """The inputs of a sample as tensors: float32 as float64, with a gradient where a rule serves the input."""
    served = {position for rule in OPS[name].rules for position in rule.positions}
    tensors: list[Any] = []
    for i, x in enumerate(sample.inputs):
        floating = x is not None and x.dtype == float32
        tensors.append(x if x is None else make_tensor(x.astype(float64) if floating else x))
        if floating and i in served:
            tensors[-1].requires_grad_()
    return tensors


@rows("name", [name for name in NAMES if OPS[name].rules and name not in NOT_SMOOTH])
def test_finite_differences(name: str) -> None:
    """The gradient rules of a function, at first and second order, at its samples that hold no infinities."""
    smooth = [s for s in FUNCTIONS[name]() if all(x is None or np.isfinite(x).all() for x in s.inputs)]
    assert smooth, f"write a sample without infinities for {name}"
    for seed, sample in enumerate(smooth):
        options = {"outputs": sample.outputs, **sample.attributes}
        gradcheck(lambda *xs, o=options: OPS[name](*xs, **o), in_float64(name, sample), order=2, elements=6, seed=seed)


def test_reasons_are_current() -> None:
    assert {name for name in NOT_SMOOTH if OPS[name].rules} == set(NOT_SMOOTH)
