"""Gradients of every operator that has one: finite differences of first and second order in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from node_cases import operators
from samples import Sample, samples

from ox.autograd import gradcheck
from ox.dtypes import float32, float64, is_floating
from ox.errors import GradientError
from ox.ops.operator import OPS
from ox.tensor import Tensor

DIFFERENTIABLE = [name for name in operators() if OPS[name].rules]
ELEMENTS = 6  # of each input, drawn anew for each sample; one wrong rule is wrong nearly everywhere


def followed(name: str, sample: Sample) -> list[int]:
    """The inputs that a gradient rule serves and that are float64 here."""
    rules, last = OPS[name].rules, len(OPS[name].schema.inputs) - 1
    covered = {p for rule in rules for p in rule.positions}
    if any(rule.variadic for rule in rules):
        covered.update(range(last, len(sample.inputs)))
    return [
        i for i in sorted(covered) if i < len(sample.inputs) and getattr(sample.inputs[i], "dtype", None) == float64
    ]


def tensors(name: str, sample: Sample, dtype: Any = float64) -> list[Any]:
    wanted = followed(name, sample)
    return [
        x
        if x is None
        else Tensor(x.astype(dtype)).requires_grad_()
        if i in wanted
        else Tensor(x.astype(dtype) if x.dtype == float64 else x)
        for i, x in enumerate(sample.inputs)
    ]


def disagreements(name: str, order: int) -> list[str]:
    bad = []
    for k, sample in enumerate(samples(name)):
        inputs = tensors(name, sample)
        if not any(x is not None and x.requires_grad for x in inputs):
            continue

        def call(*xs: Any, sample: Sample = sample) -> Any:
            return OPS[name](*xs, outputs=sample.outputs, **sample.attributes)

        first = call(*inputs)
        if not (first if isinstance(first, tuple) else (first,))[0].requires_grad:
            continue
        try:
            gradcheck(call, inputs, order=order, elements=ELEMENTS, seed=k)
        except GradientError as error:
            shapes = [None if x is None else list(x.shape) for x in inputs]
            bad.append(f"{sample.name} {shapes} {sample.attributes}: {error.one_line()}")
    return bad


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_finite_differences(name: str) -> None:
    bad = disagreements(name, order=2)
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_there_are_samples(name: str) -> None:
    assert any(followed(name, s) for s in samples(name)), f"write samples for {name} in tests/ops/samples.py"


@pytest.mark.parametrize("name", operators())
def test_only_floating_outputs_require_a_gradient(name: str) -> None:
    """Whatever the inputs ask for, an integer or bool output never does, and nothing does under no_grad."""
    from ox.autograd import no_grad

    for sample in samples(name)[:4]:
        inputs = tensors(name, sample)
        for x in inputs:
            if x is not None and x.dtype == float64:
                x.requires_grad_()
        result = OPS[name](*inputs, outputs=sample.outputs, **sample.attributes)
        for y in result if isinstance(result, tuple) else (result,):
            assert not y.requires_grad or is_floating(y.dtype)
        with no_grad():
            result = OPS[name](*inputs, outputs=sample.outputs, **sample.attributes)
        for y in result if isinstance(result, tuple) else (result,):
            assert not y.requires_grad


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_keep_the_type(name: str) -> None:
    """float32 in, float32 cotangents out, of the input's own shape."""
    for sample in samples(name):
        inputs = tensors(name, sample, float32)
        result = OPS[name](*inputs, outputs=sample.outputs, **sample.attributes)
        outputs = [y for y in (result if isinstance(result, tuple) else (result,)) if y.requires_grad]
        for y in outputs[:1]:
            y.backward(Tensor(np.ones(y.shape, y.dtype)))
        for x in inputs:
            if x is not None and x.requires_grad and x.grad is not None:
                assert x.grad.dtype == float32
                assert x.grad.data.shape == x.data.shape
