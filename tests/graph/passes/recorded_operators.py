"""Calls of operators with their gradients as graphs, to try passes and engines on."""

from __future__ import annotations

from typing import Any

import numpy as np
from recorded_steps import FusedRecording
from samples import Sample
from test_gradients import followed
from test_recording import as_float32

from ox.autograd import grad
from ox.core.operator import OPS
from ox.errors import OxError
from ox.graph.ir import Graph
from ox.graph.record.recording import record
from ox.tensors.tensor import make_tensor


def recorded(name: str, sample: Sample, *, fixed: bool, fused: bool) -> tuple[Graph, list[Any]] | None:
    """The graph of a call and its gradients, and its inputs; None for a sample that has no arrays to feed."""
    tensors, given = as_float32(name, sample)
    wanted = [i for i in followed(name, sample) if i in given]
    random = np.random.default_rng(3)

    def step(*inputs: Any) -> list[Any]:
        own = list(tensors)
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

    inputs = {f"in{i}": make_tensor(tensors[i].array) for i in given}
    dims = None if fixed else {n: [f"{n}_{axis}" for axis in range(t.ndim)] for n, t in inputs.items()}
    try:
        graph = record(step, inputs, dims=dims, recording=FusedRecording() if fused else None)
    except OxError:
        return None
    return graph, [make_tensor(tensors[i].array.copy()) for i in given]
