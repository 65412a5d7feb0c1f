"""Every operator and its gradient as a plain ONNX graph: stock ONNX Runtime and a replay give eager's numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
from known import ONNXRUNTIME, reason
from node_cases import operators
from rows import rows
from samples import Sample, samples
from test_gradients import DIFFERENTIABLE, followed

from ox import devices
from ox.autograd import grad
from ox.core.operator import OPS
from ox.dtypes import float32, float64
from ox.graph.record.recording import record
from ox.graph.replay import replay
from ox.graph.writer.write import to_model
from ox.tensors.tensor import make_tensor
from ox.tolerance import compare


def as_float32(name: str, sample: Sample) -> tuple[list[Any], list[int]]:
    """Tensors of a sample, and which of them become graph inputs; host inputs stay constants of the graph."""
    schema = OPS[name].schema
    tensors = [x if x is None else make_tensor(x.astype(float32) if x.dtype == float64 else x) for x in sample.inputs]
    return tensors, [i for i, x in enumerate(tensors) if x is not None and not schema.input_at(i).host]


def step_of(name: str, sample: Sample, tensors: list[Any], wanted: list[int]) -> Callable[..., list[Any]]:
    """The call with its gradients for the inputs `wanted`, by cotangents that are the same each time."""
    given = as_float32(name, sample)[1]

    def step(*inputs: Any) -> list[Any]:
        own, random = list(tensors), np.random.default_rng(3)
        for i, x in zip(given, inputs, strict=True):
            own[i] = x
        for i in wanted:
            own[i].requires_grad_()
        result = OPS[name](*own, outputs=sample.outputs, **sample.attributes)
        outputs = list(result) if isinstance(result, tuple) else [result]
        followed_outputs = [y for y in outputs if y.requires_grad]
        if not followed_outputs:
            return outputs
        cotangents = [make_tensor(random.standard_normal(y.array.shape).astype(y.dtype)) for y in followed_outputs]
        found = grad(followed_outputs, [own[i] for i in wanted], cotangents, allow_unused=True)
        return [*(y.detach() for y in outputs), *(g for g in found if g is not None)]

    return step


def problems(name: str, sample: Sample, with_gradient: bool) -> list[str]:
    """What differs between eager, the file on ONNX Runtime, and the replay, for a call and its gradients."""
    tensors, given = as_float32(name, sample)
    wanted = [i for i in followed(name, sample) if i in given] if with_gradient else []
    if with_gradient and not wanted:
        return []
    step = step_of(name, sample, tensors, wanted)
    names = [f"in{i}" for i in given]
    inputs = dict(zip(names, (tensors[i] for i in given), strict=True))
    fresh = [make_tensor(tensors[i].array) for i in given]
    eager = step(*fresh)
    dims = {n: [f"{n}_{axis}" for axis in range(t.ndim)] for n, t in inputs.items()}
    graph = record(step, inputs, dims=dims)
    model = to_model(graph)
    onnx.checker.check_model(model, full_check=False)
    feeds = {n: np.array(t.array) for n, t in inputs.items()}
    bad = []
    for i, (value, expected) in enumerate(
        zip(replay(graph, [make_tensor(f) for f in feeds.values()]), eager, strict=True)
    ):
        # nearly, since a recording sees the body of what a fused function computes in another order
        if not compare(value.array, expected.array).ok:
            bad.append(f"replay: output {i} differs by {compare(value.array, expected.array).max_abs:.3g}")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    for i, (value, expected) in enumerate(zip(session.run(None, feeds), eager, strict=True)):
        difference = compare(value, expected.array)
        if not difference.ok:
            bad.append(
                f"ONNX Runtime: output {i} {list(value.shape)} differs by {difference.max_abs:.3g},"
                f" allowed {difference.allowed:.3g}"
            )
    return bad


def runs_there(name: str, sample: Sample) -> bool:
    """Whether ONNX Runtime has a kernel for the operator itself; where it has, it must run the gradient too."""
    tensors, _ = as_float32(name, sample)
    try:
        with devices.forced("onnxruntime"):
            OPS[name](*tensors, outputs=sample.outputs, **sample.attributes)
    except devices.NoKernelError:
        return False
    return True


def differing(name: str, with_gradient: bool) -> list[str]:
    bad = []
    for sample in samples(name):
        if reason(ONNXRUNTIME, sample.name) is not None or not runs_there(name, sample):
            continue
        try:
            found = problems(name, sample, with_gradient)
        except Exception as error:  # a case that cannot be recorded, written or run is as bad as one that differs
            found = [f"{type(error).__name__}: {error}"]
        shapes = [None if x is None else f"{x.dtype}{list(x.shape)}" for x in sample.inputs]
        bad += [f"{sample.name} {shapes} {sample.attributes}: {each}" for each in found]
    return bad


@rows("name", operators(), items=8)
def test_forward(name: str) -> None:
    bad = differing(name, with_gradient=False)
    assert not bad, "\n".join(bad)


@rows("name", DIFFERENTIABLE, items=16)
def test_gradient(name: str) -> None:
    bad = differing(name, with_gradient=True)
    assert not bad, "\n".join(bad)
