"""Runs a pass on a recorded function, and compares what the graph computes before and after, at several sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort

import ox
from ox import tolerance
from ox.graph.ir import Graph
from ox.graph.passes.cleanup import fold_constants, remove_dead, remove_identities
from ox.graph.passes.shape_inference import inferred_sizes
from ox.graph.record.recording import record
from ox.graph.replay import replay
from ox.graph.writer.write import to_model

Dims = Sequence[int | str]


def after(
    apply: Callable[[Graph, Any], object],
    function: Callable[[Any], Any],
    dims: Dims,
    sizes: Mapping[str, Sequence[int]],
    constants: Mapping[str, Any] | None = None,
    exact: bool = True,
) -> tuple[list[str], Graph]:
    """The operators that are left, in order, and the graph.

    Args:
        apply: the pass; it gets the graph and inferred sizes.
        dims: of the function's only input, with names for those that vary.
        sizes: for each name, the size of the recording, then others.
    """

    def given(place: int) -> Any:
        shape = [sizes[d][place] if isinstance(d, str) else d for d in dims]
        return ox.from_numpy(np.random.default_rng(place).normal(size=shape).astype(np.float32))

    with ox.no_grad():
        graph = record(function, {"x": given(0)}, dims={"x": list(dims)}, constants=constants or {})
    remove_dead(graph)
    remove_identities(graph)
    fold_constants(graph)
    runs = len(next(iter(sizes.values()))) if sizes else 1
    expected = [[t.detach().numpy().copy() for t in replay(graph, [given(i)])] for i in range(runs)]
    apply(graph, inferred_sizes(graph))
    remove_dead(graph)
    session = ort.InferenceSession(to_model(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    for i in range(runs):
        found = [t.detach().numpy() for t in replay(graph, [given(i)])]
        elsewhere = session.run(None, {"x": given(i).numpy()})
        for a, b, c in zip(expected[i], found, elsewhere, strict=True):
            assert np.array_equal(a, b, equal_nan=True) if exact else tolerance.compare(b, a).ok
            assert a.shape == c.shape and tolerance.compare(c, a).ok
    return [node.op_type for node in graph.nodes], graph
