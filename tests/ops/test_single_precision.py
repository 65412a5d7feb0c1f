"""Gradients of operators that do not take float64: against differences in float32, with tolerances that fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from samples import Sample, samples

from ox.autograd import grad
from ox.core.operator import OPS
from ox.dtypes import float32, float64
from ox.tensors.tensor import make_tensor

OPERATORS = [
    name
    for name, op in OPS.items()
    if op.rules
    and not op.domain
    and not any(float64 in op.schema.allowed(op.schema.input_at(p).type) for rule in op.rules for p in rule.positions)
]
STEP = 1 / 64  # large, for float32 has seven digits, and each direction is smooth


def chosen(name: str, sample: Sample) -> list[int]:
    covered = {p for rule in OPS[name].rules for p in rule.positions}
    return [
        i for i in sorted(covered) if i < len(sample.inputs) and getattr(sample.inputs[i], "dtype", None) == float32
    ]


@pytest.mark.parametrize("name", OPERATORS)
def test_directional_derivatives(name: str) -> None:
    """The gradient along a random direction of each input."""
    random = np.random.default_rng(5)
    for sample in samples(name):
        followed = chosen(name, sample)
        if not followed:
            continue  # a case in halves

        def total(inputs: list[Any], weights: list[Any], sample: Sample = sample) -> Any:
            result = OPS[name](*inputs, outputs=sample.outputs, **sample.attributes)
            outputs = result if isinstance(result, tuple) else (result,)
            if not weights:
                weights += [make_tensor(random.standard_normal(y.array.shape).astype(y.dtype)) for y in outputs]
            return sum((y * w).sum() for y, w in zip(outputs, weights, strict=True))

        weights: list[Any] = []
        inputs = [x if x is None else make_tensor(x) for x in sample.inputs]
        for i in followed:
            inputs[i].requires_grad_()
        first = grad(total(inputs, weights), [inputs[i] for i in followed])
        for i, g in zip(followed, first, strict=True):
            way = random.standard_normal(sample.inputs[i].shape).astype(float32)
            ends = []
            for sign in (1, -1):
                moved = list(inputs)
                moved[i] = make_tensor(sample.inputs[i] + sign * STEP * way)
                ends.append(float(total(moved, weights).item()))
            slope = (ends[0] - ends[1]) / (2 * STEP)
            found = float((g.array * way).sum())
            assert abs(found - slope) <= 2e-2 * max(1.0, abs(slope)), f"{name} {sample.name} input {i}"
