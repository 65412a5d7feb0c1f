"""NumPy == CuPy: the generated calls and their gradients on a GPU. Skipped without a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from node_cases import operators
from samples import Sample, samples
from test_gradients import DIFFERENTIABLE, tensors

from ox import devices
from ox.core.operator import OPS
from ox.dtypes import NARROW, float32, float64, onnx_type
from ox.tensors.tensor import make_tensor
from ox.tolerance import compare

pytestmark = pytest.mark.gpu


def moved(name: str, inputs: list[Any]) -> list[Any]:
    """The same leaves on the GPU, but for host inputs, which stay."""
    schema, there = OPS[name].schema, []
    for i, x in enumerate(inputs):
        if x is None or schema.input_at(i).host:
            there.append(x)
        else:
            there.append(x.detach().to("cuda").requires_grad_(x.requires_grad))
    return there


def on_gpu(name: str) -> list[Sample]:
    """The samples without element types that CuPy does not have."""
    codes = {onnx_type(dtype) for dtype in NARROW}
    return [
        sample
        for sample in samples(name)
        if not any(x is not None and x.dtype in NARROW for x in sample.inputs)
        and codes.isdisjoint(value for value in sample.attributes.values() if isinstance(value, int))
    ]


def run(name: str, sample: Sample, inputs: list[Any]) -> list[Any]:
    result = OPS[name](*inputs, outputs=sample.outputs, **sample.attributes)
    return list(result) if isinstance(result, tuple) else [result]


@pytest.mark.parametrize("name", operators())
def test_forward(name: str) -> None:
    for sample in on_gpu(name):
        # BitCast's attribute goes with the width of its input
        dtype = float64 if name == "BitCast" else float32
        inputs = [x if x is None else x.detach() for x in tensors(name, sample, dtype)]
        for a, b in zip(run(name, sample, moved(name, inputs)), run(name, sample, inputs), strict=True):
            difference = compare(devices.cpu(a.array), b.array)
            assert difference.ok, f"{name} {sample.name}: off by {difference.max_abs}"


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient(name: str) -> None:
    for sample in on_gpu(name):
        here = tensors(name, sample, float32)
        there = moved(name, here)
        for own in (here, there):
            for y in run(name, sample, own)[:1]:
                if y.requires_grad:
                    ones = make_tensor(np.ones(y.array.shape, y.dtype))
                    y.backward(ones if own is here else ones.to("cuda"))
        for a, b in zip(there, here, strict=True):
            if b is not None and b.grad is not None:
                difference = compare(devices.cpu(a.grad.array), b.grad.array)
                assert difference.ok, f"{name} {sample.name}: off by {difference.max_abs}"
