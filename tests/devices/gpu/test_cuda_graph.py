"""What goes into a CUDA graph, and what does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ox.devices.gpu.cuda_graph import CaptureError, GraphMemory
from ox.devices.gpu.cupy_device import cupy

pytestmark = pytest.mark.gpu


def test_a_graph_computes_again_from_what_the_inputs_hold() -> None:
    xp, memory = cupy(), GraphMemory()
    x, made = xp.arange(12, dtype=np.float32).reshape(3, 4), []

    def work(namespace: Any) -> None:
        made.append(namespace.concatenate([namespace.matmul(x, x.T), namespace.stack([x, x], 1)[:, 0, :3]], 1) * 2)

    graph = memory.capture(work)
    for _ in range(3):
        x += 1
        graph.launch()
        host = x.get()
        assert np.allclose(made[0].get(), np.concatenate([host @ host.T, host[:, :3]], 1) * 2)


@pytest.mark.parametrize("wrong", ["host", "wait", "error"])
def test_what_cannot_be_captured(wrong: str) -> None:
    xp, memory = cupy(), GraphMemory()
    x = xp.ones(3, np.float32)

    def work(namespace: Any) -> None:
        made = x * 2
        if wrong == "host":
            made += namespace.asarray(np.ones(3, np.float32))
        elif wrong == "wait":
            made.get()
        else:
            raise ValueError("no such thing")

    with pytest.raises(CaptureError, match="cannot be captured"):
        memory.capture(work)
    assert np.array_equal((x + xp.asarray(np.ones(3, np.float32))).get(), [2, 2, 2])  # and all works as before
    graph = memory.capture(lambda _: x.__imul__(3))
    graph.launch()
    assert x.get().tolist() == [3, 3, 3]


def test_graphs_share_the_memory_of_what_lives_inside() -> None:
    xp, memory = cupy(), GraphMemory()
    x = xp.ones(1 << 20, np.float32)
    results = [xp.empty_like(x) for _ in range(3)]
    graphs = []
    for result in results:

        def work(_: Any, result: Any = result) -> None:
            for _ in range(5):
                result[...] = (x + 1) * 2 - x

        graphs.append(memory.capture(work))
    assert sum(chunk.size for chunk in memory.chunks.held.values()) <= 3 * x.nbytes
    for graph in graphs:
        graph.launch()
    assert all((result.get() == 3).all() for result in results)


def test_memory_that_was_given_back_is_taken_again() -> None:
    """CuPy's pool gives back what is free when memory is short; graphs keep what they were captured with."""
    xp, memory = cupy(), GraphMemory()
    x = xp.ones(1 << 16, np.float32)
    result = xp.empty_like(x)
    for _ in range(4):
        graph = memory.capture(lambda _: xp.multiply(x * 2, 3, out=result))
        held = dict(memory.chunks.held)
        memory._pool.free_all_blocks()
        graph.launch()
        assert (result.get() == 6).all()
    assert dict(memory.chunks.held) == held and len(held) <= 2
