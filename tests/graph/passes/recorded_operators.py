"""Calls of operators with their gradients as graphs, to try passes and engines on."""

from __future__ import annotations

from typing import Any

from recorded_step import FusedRecording
from samples import Sample
from test_gradients import followed
from test_recording import as_float32, step_of

from ox.errors import OxError
from ox.graph.ir import Graph
from ox.graph.record.recording import record
from ox.tensors.tensor import make_tensor


def recorded(name: str, sample: Sample, *, fixed: bool, fused: bool) -> tuple[Graph, list[Any]] | None:
    """The graph of a call and its gradients, and its inputs; None for a sample that has no arrays to feed."""
    tensors, given = as_float32(name, sample)
    wanted = [i for i in followed(name, sample) if i in given]
    step = step_of(name, sample, tensors, wanted)
    inputs = {f"in{i}": make_tensor(tensors[i].array) for i in given}
    dims = None if fixed else {n: [f"{n}_{axis}" for axis in range(t.ndim)] for n, t in inputs.items()}
    try:
        graph = record(step, inputs, dims=dims, recording=FusedRecording() if fused else None)
    except OxError:
        return None
    return graph, [make_tensor(tensors[i].array.copy()) for i in given]
