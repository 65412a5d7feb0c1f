"""Every pass keeps what a graph computes, its inputs, its outputs and what it owns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from rows import rows

import ox
from ox import nn
from ox.errors import ExportError
from ox.graph.ir import Graph
from ox.graph.passes import cleanup
from ox.graph.passes.shape_inference import infer, simplify
from ox.graph.reader.read import from_model
from ox.graph.record.recording import record
from ox.graph.replay import replay
from ox.graph.writer.opset import select_opset
from ox.graph.writer.write import to_model

WEIGHT = ox.ones(4)


def model(x: Any) -> Any:
    """Dead code, identities, constant arithmetic, known and unknown sizes, equal constants."""
    unused = x.exp().sum()
    del unused
    scale = (ox.arange(4).float() + 1) / 2
    y = ox.ops.Identity(x * WEIGHT * scale.sqrt())
    y = y.reshape(y.shape[0], y.shape[1] // 2, 2)
    return y.reshape(-1, 4) + WEIGHT.exp() + 1.0 + ox.ones(()) * x.shape[0]


def recorded() -> Graph:
    return record(model, {"x": ox.ones(2, 4)}, dims={"x": ["batch", 4]}, constants={"weight": WEIGHT})


def fold_shapes(graph: Graph) -> None:
    cleanup.fold_shapes(graph, infer(to_model(graph, weights=False)))


PASSES: dict[str, Callable[[Graph], object]] = {
    "remove_dead": cleanup.remove_dead,
    "remove_identities": cleanup.remove_identities,
    "fold_constants": cleanup.fold_constants,
    "fold_shapes": fold_shapes,
    "merge_constants": cleanup.merge_constants,
    "simplify": simplify,
}


@rows("name", PASSES)
def test_results_stay(name: str) -> None:
    graph, given = recorded(), ox.from_numpy(np.random.default_rng(0).random((5, 4), dtype=np.float32))
    before = len(graph.nodes), len(graph.constants)
    expected = replay(graph, [given])[0].numpy()
    PASSES[name](graph)
    assert len(graph.nodes) < before[0] or len(graph.constants) < before[1], "it found something to do"
    np.testing.assert_array_equal(replay(graph, [given])[0].numpy(), expected)
    assert [v.name for v in graph.inputs] == ["x"] and [v.name for v in graph.outputs] == ["output"]
    assert [v.name for v in graph.owned] == ["weight"]
    onnx.checker.check_model(to_model(graph), full_check=True)


def test_simplify_ends_at_a_fixed_point() -> None:
    graph = recorded()
    simplify(graph)
    count = len(graph.nodes), len(graph.constants)
    simplify(graph)
    assert (len(graph.nodes), len(graph.constants)) == count


def test_parameters_are_never_folded() -> None:
    graph = recorded()
    simplify(graph)
    assert any(n.op_type == "Exp" and n.inputs[0] in graph.owned for n in graph.nodes)


def test_folded_scalars_stay_scalars() -> None:
    half = ox.tensor(0.5)
    graph = record(lambda x: x * (half + half).sqrt(), {"x": ox.ones(2)})
    simplify(graph)
    assert [a.shape for a in graph.constants.values()] == [()]


def test_large_constants_stay_computed() -> None:
    row = ox.ones(1, 300)
    graph = record(lambda x: x + row.expand(300, 300) * 2.0, {"x": ox.ones(300, 300)})
    simplify(graph)
    assert [n.op_type for n in graph.nodes] == ["Expand", "Mul", "Add"]
    assert sum(a.size for a in graph.constants.values()) < 400


def test_identities_at_the_ends_stay() -> None:
    graph = record(lambda x: (x, WEIGHT, x), {"x": ox.ones(2)}, constants={"w": WEIGHT})
    simplify(graph)
    assert [n.op_type for n in graph.nodes] == ["Identity"] * 3
    assert len({v.name for v in graph.outputs}) == 3
    onnx.checker.check_model(to_model(graph), full_check=True)


@rows("opset", [15, 17, 21, 26])
def test_reading_what_was_written(opset: int) -> None:
    graph = recorded()
    simplify(graph)
    read = from_model(to_model(graph, opset=opset))
    assert [n.op_type for n in read.nodes] == [n.op_type for n in graph.nodes]
    assert [n.place for n in read.nodes] == [n.place for n in graph.nodes]
    assert {v.name for v in read.owned} == {"weight"}
    given = ox.ones(3, 4)
    np.testing.assert_array_equal(replay(read, [given])[0].numpy(), replay(graph, [given])[0].numpy())


def test_writing_twice_is_the_same() -> None:
    graph = record(lambda x: x + ox.rand(x.shape[0], 4), {"x": ox.ones(2, 4)}, dims={"x": ["batch", 4]})
    simplify(graph)
    assert to_model(graph).SerializeToString(deterministic=True) == to_model(graph).SerializeToString(
        deterministic=True
    )


def test_the_lowest_opset_that_will_do() -> None:
    assert select_opset(record(lambda x: x * 2, {"x": ox.ones(2)}), None) == 21
    graph = record(lambda x: x * 2, {"x": ox.ones(2).bfloat16()})
    assert select_opset(graph, None) == 21 and select_opset(graph, 13) == 13
    assert select_opset(record(nn.GELU(), {"x": ox.ones(2)}), 19) == 19  # as a function of older operators
    sampled = record(lambda x: nn.functional.grid_sample(x, ox.zeros(1, 2, 2, 2)), {"x": ox.ones(1, 1, 2, 2)})
    with pytest.raises(ExportError, match="GridSample does not exist in opset 15") as caught:
        select_opset(sampled, 15)
    assert "grid_sample" in str(caught.value)


def test_contradictions_are_refused() -> None:
    graph = record(lambda x: x @ ox.ones(4, 3), {"x": ox.ones(2, 4)}, dims={"x": ["batch", 4]})
    graph.outputs[0].dims = ("batch", 5)
    with pytest.raises(ExportError, match="strict shape inference"):
        infer(to_model(graph))
