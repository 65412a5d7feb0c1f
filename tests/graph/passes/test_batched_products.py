"""Linear layers of more than two dimensions as MatMul and Add, where Reshapes stood around a Gemm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from rows import rows

import ox
from ox import nn
from ox.graph.ir import Graph
from ox.graph.passes.batched_products import write_batched_products
from ox.graph.passes.cleanup import remove_dead
from ox.graph.passes.shape_inference import simplify
from ox.graph.record.recording import record
from ox.graph.replay import replay
from ox.graph.writer.names import rename


def after(function: Callable[..., Any], shape: tuple[int, ...], dims: list[Any]) -> tuple[Graph, bool]:
    graph = record(function, {"x": ox.tensor(np.zeros(shape, np.float32))}, dims={"x": dims})
    rename(graph)
    changed = write_batched_products(graph, simplify(graph))
    remove_dead(graph)
    return graph, changed


@rows("bias", [False, True])
@rows("dims", [["batch", "length", 8], ["batch", 5, 8], ["batch", 2, "length", 8]])
def test_a_linear_layer(dims: list[Any], bias: bool) -> None:
    layer = nn.Linear(8, 3, bias=bias)
    shape = tuple(size if isinstance(size, int) else 4 + i for i, size in enumerate(dims))
    with ox.no_grad():
        graph, changed = after(layer, shape, dims)
        kinds = Counter(node.op_type for node in graph.nodes)
        assert changed and kinds == {"Transpose": 1, "MatMul": 1, **({"Add": 1} if bias else {})}
        x = ox.randn(*(size if isinstance(size, int) else 7 + i for i, size in enumerate(dims)))
        assert np.allclose(replay(graph, [x])[0].numpy(), layer(x).numpy(), atol=1e-6)


def test_heads_that_the_rows_join() -> None:
    """A Reshape of the last two dimensions to rows: they are one dimension of the product."""
    layer = nn.Linear(8, 3)

    def joined(x: Any) -> Any:
        return layer(x.reshape(-1, 8).reshape(x.shape[0], x.shape[1], 8))

    def rows(x: Any) -> Any:
        y = ox.ops.Gemm(x.reshape(-1, 8), layer.weight, layer.bias, transB=1)
        return y.reshape(x.shape[0], x.shape[1], 3)

    with ox.no_grad():
        graph, changed = after(rows, (4, 5, 2, 4), ["batch", "length", 2, 4])
        assert changed and "Gemm" not in {node.op_type for node in graph.nodes}
        x = ox.randn(3, 6, 2, 4)
        assert np.allclose(replay(graph, [x])[0].numpy(), joined(x).numpy(), atol=1e-6)


def test_rows_that_are_grouped_otherwise_stay() -> None:
    """The rows of two steps are one: the product has no dimension of the source left to stand in."""
    layer = nn.Linear(16, 3)

    def pairs(x: Any) -> Any:
        y = ox.ops.Gemm(x.reshape(-1, 16), layer.weight, layer.bias, transB=1)
        return y.reshape(x.shape[0], -1, 3)

    with ox.no_grad():
        graph, changed = after(pairs, (4, 6, 8), ["batch", "length", 8])
    assert not changed and "Gemm" in {node.op_type for node in graph.nodes}
