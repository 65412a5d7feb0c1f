"""`optimize` and each of its passes keep what a graph computes; here on random graphs and on whole training steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from random_graph import random_graph
from recorded_steps import Step
from rows import rows

import ox
from ox import ops, tolerance
from ox.graph.ir import Graph
from ox.graph.passes.algebra import simplify_arithmetic
from ox.graph.passes.cleanup import merge_constants, remove_dead, remove_identities
from ox.graph.passes.common_subexpressions import merge_common_subexpressions
from ox.graph.passes.layout import move_transposes
from ox.graph.passes.movement import keeps_all, merge_movement
from ox.graph.passes.optimize import optimize
from ox.graph.passes.sizes import fixed_values, fold_fixed_sizes
from ox.graph.record.recording import record
from ox.graph.replay import replay
from ox.graph.writer.write import to_model

EXACT: dict[str, Callable[[Graph], object]] = {
    "remove_dead": remove_dead,
    "remove_identities": remove_identities,
    "merge_constants": merge_constants,
    "fold_fixed_sizes": fold_fixed_sizes,
    "merge_common_subexpressions": merge_common_subexpressions,
    "merge_movement": merge_movement,
    "move_transposes": move_transposes,
}
PASSES = {**EXACT, "simplify_arithmetic": simplify_arithmetic, "optimize": optimize}


def results(graph: Graph, inputs: list[Any]) -> list[np.ndarray]:
    return [t.numpy() for t in replay(graph, inputs)]


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal in every bit, a NaN being a NaN."""
    return a.shape == b.shape and a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True) and zero_signs(a, b)


def zero_signs(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(np.signbit(a[a == 0]), np.signbit(b[b == 0])) if a.dtype.kind == "f" else True


@rows("name", PASSES, fast=12)
@rows("seed", range(60))
def test_random_graphs_compute_the_same(seed: int, name: str) -> None:
    graph, inputs = random_graph(seed)
    before = results(graph, inputs)
    ends = list(graph.inputs), list(graph.outputs), [v.name for v in graph.outputs]
    PASSES[name](graph)
    assert all(a is b for a, b in zip(ends[0], graph.inputs, strict=True)), "the same inputs"
    assert all(a is b for a, b in zip(ends[1], graph.outputs, strict=True)), "the same outputs"
    assert [v.name for v in graph.outputs] == ends[2]
    for v, a, b in zip(graph.outputs, before, results(graph, inputs), strict=True):
        assert same_bits(a, b) if name in EXACT else tolerance.compare(b, a).ok, v.name
        assert b.shape == v.shape


def test_random_graphs_are_ones_that_the_passes_change() -> None:
    found: dict[str, int] = dict.fromkeys(PASSES, 0)
    for seed in range(12):
        for name, apply in PASSES.items():
            graph, _ = random_graph(seed)
            text = describe(graph)
            apply(graph)
            found[name] += describe(graph) != text
    del found["move_transposes"]  # after others only
    assert all(count >= 6 for count in found.values()), found


def describe(graph: Graph) -> list[Any]:
    """What a graph is, by numbers of its values."""
    number = {v: i for i, v in enumerate(graph.values())}
    return [
        (n.key, [None if v is None else number[v] for v in n.inputs], repr(n.attributes), n.where) for n in graph.nodes
    ] + [[a.tobytes() for a in graph.constants.values()]]


@rows("model", ["LeNet", "transformer"])
@rows("fused", [True, False], ids=["fused functions", "ai.onnx"])
def test_a_whole_step_gets_shorter_and_stays_the_same(model: str, fused: bool) -> None:
    step = Step(model, fused=fused)
    inputs = [*step.tensors(), *(t.detach() for t in step.state.values())]
    before = results(step.graph, inputs)
    count = len(step.graph.nodes)
    places = {node.where for node in step.graph.nodes}
    optimize(step.graph)
    assert len(step.graph.nodes) < 0.9 * count
    assert {node.where for node in step.graph.nodes} <= places, "nodes keep the user's lines"
    for v, a, b in zip(step.graph.outputs, before, results(step.graph, inputs), strict=True):
        assert tolerance.compare(b, a).ok, v.name


def test_the_result_depends_on_the_graph_alone() -> None:
    step = Step("transformer")
    first, second = step.graph.copy(), step.graph.copy()
    optimize(first)
    optimize(second)
    assert describe(first) == describe(second)
    again = describe(first)
    optimize(first)
    assert describe(first) == again, "a fixed point"


def one_output(function: Any, **inputs: Any) -> Graph:
    graph = record(function, inputs)
    optimize(graph)
    return graph


def operators(graph: Graph) -> list[str]:
    return [node.key for node in graph.nodes]


X = ox.from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3) - 2)
COUNT = ox.tensor([[1, 2, 3]])

RULES: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "a factor of 1": (lambda x: (x * 1.0).exp(), ["Exp"]),
    "a divisor of 1": (lambda x: (x / 1.0).exp(), ["Exp"]),
    "minus 0": (lambda x: (x - 0.0).exp(), ["Exp"]),
    "plus 0 makes 0.0 of -0.0": (lambda x: (x + 0.0).exp(), ["Add", "Exp"]),
    "plus -0.0": (lambda x: ops.Exp(ops.Add(x, ox.tensor(-0.0))), ["Exp"]),
    "minus -0.0 makes 0.0 of -0.0": (lambda x: ops.Exp(ops.Sub(x, ox.tensor(-0.0))), ["Sub", "Exp"]),
    "a factor of more dimensions": (lambda x: ops.Mul(x, ox.ones(1, 1, 1)).exp(), ["Mul", "Exp"]),
    "a power of 1": (lambda x: ops.Exp(ops.Pow(x, ox.tensor(1.0))), ["Exp"]),
    "two minus signs": (lambda x: ops.Neg(-x).exp(), ["Exp"]),
    "a factor of -1": (lambda x: (x * -1.0).exp(), ["Neg", "Exp"]),
    "a sum with a negative": (lambda x: x.exp() + (-x), ["Exp", "Sub"]),
    "a negative first": (lambda x: -x + x.exp(), ["Exp", "Sub"]),
    "a difference with a negative": (lambda x: x.exp() - (-x), ["Exp", "Add"]),
    "a divisor of 4": (lambda x: x / 4.0, ["Mul"]),
    "a divisor of 3": (lambda x: x / 3.0, ["Div"]),
    "two factors below 1": (lambda x: x * 0.5 * 0.3, ["Mul"]),
    "two factors above 1": (lambda x: x * 3.0 * 5.0, ["Mul"]),
    "a scale there and back": (lambda x: x * 65536.0 * (1 / 65536.0), ["Mul", "Mul"]),
    "factors whose product is no number": (lambda x: x * 1e30 * 1e30, ["Mul", "Mul"]),
    "a wider type and back": (lambda x: x.double().float().exp(), ["Exp"]),
    "a narrower type and back": (lambda x: x.half().float().exp(), ["Cast", "Cast", "Exp"]),
    "through a wider type": (lambda x: x.half().float().double(), ["Cast", "Cast"]),
    "two permutations": (lambda x: x[None].permute(0, 2, 1).permute(1, 0, 2), ["Unsqueeze", "Transpose"]),
    "a permutation and back": (lambda x: ops.Exp(ops.Transpose(ops.Transpose(x, perm=[1, 0]), perm=[1, 0])), ["Exp"]),
    "sizes and other sizes": (lambda x: x.reshape(3, 2).reshape(6), ["Reshape"]),
    "sizes and back": (lambda x: x.reshape(3, 2).reshape(2, 3).exp(), ["Exp"]),
    "an axis and none": (lambda x: x.unsqueeze(1).squeeze(1).exp(), ["Exp"]),
    "flat and not": (lambda x: ops.Flatten(x.unsqueeze(0)).reshape(2, 3).exp(), ["Exp"]),
    "an expansion that broadcasting does": (lambda x: x.exp() * x[:1].expand(2, 3), ["Exp", "Slice", "Mul"]),
    "an expansion that is needed": (lambda x: x[:1].expand(2, 3) * 2.0, ["Slice", "Expand", "Mul"]),
    "a slice of all": (lambda x: x[:, :].exp(), ["Exp"]),
    "turned round": (lambda x: x.flip(0).exp(), ["Slice", "Exp"]),
    "a pad of nothing": (lambda x: ops.Pad(x, ox.tensor([0, 0, 0, 0])).exp(), ["Exp"]),
    "a pad that shifts": (lambda x: ops.Pad(x, ox.tensor([0, 1, 0, -1])).exp(), ["Pad", "Exp"]),
    "one piece": (lambda x: ops.Concat(x, axis=0).exp(), ["Exp"]),
    "a product with a transposed matrix": (lambda x: x @ x.t(), ["Gemm"]),
    "a Gemm with a transposed matrix": (lambda x: ops.Gemm(x, ops.Transpose(x, perm=[1, 0])), ["Gemm"]),
    "the same twice": (lambda x: x.exp() * x.exp(), ["Exp", "Mul"]),
    "a sum said the other way": (lambda x: (x + x.exp()).sin() * (x.exp() + x).sin(), ["Exp", "Add", "Sin", "Mul"]),
    "a difference said the other way": (lambda x: (x - x.exp()) * (x.exp() - x), ["Exp", "Sub", "Sub", "Mul"]),
    "other attributes": (lambda x: ops.Softmax(x, axis=0) + ops.Softmax(x, axis=1), ["Softmax", "Softmax", "Add"]),
    "sizes of a tensor": (lambda x: x * ops.Cast(ops.Shape(x), to=1)[0], ["Mul"]),
    "integers": (lambda x: x.exp() * ((COUNT + 0) * 1).float(), ["Exp", "Mul"]),
    "dead": (lambda x: (x.exp(), x.sin())[0], ["Exp"]),
}  # fmt: skip


@rows("name", RULES)
def test_rules(name: str) -> None:
    function, expected = RULES[name]
    plain = record(function, {"x": X})
    graph = one_output(function, x=X)
    assert operators(graph) == expected
    x = X.numpy().copy()
    x[0] = [0.0, -0.0, np.inf]
    given = [ox.from_numpy(x)]
    for a, b in zip(results(plain, given), results(graph, given), strict=True):
        close = name in ("two factors below 1", "two factors above 1", "a product with a transposed matrix")
        assert tolerance.compare(b, a).ok if close else same_bits(a, b)


def test_random_operators_are_never_merged() -> None:
    graph = one_output(lambda x: ops.RandomUniformLike(x) - ops.RandomUniformLike(x), x=X)
    assert operators(graph) == ["RandomUniformLike", "RandomUniformLike", "Sub"]


def test_parameters_are_no_numbers() -> None:
    one = ox.ones(())
    graph = record(lambda x: x * one, {"x": X}, constants={"scale": one})
    optimize(graph)
    assert operators(graph) == ["Mul"] and {v.name for v in graph.owned} == {"scale"}


def test_equal_outputs_stay_two() -> None:
    graph = one_output(lambda x: (x.exp(), x.exp(), x * 1.0), x=X)
    assert operators(graph) == ["Exp", "Identity", "Identity"]
    assert [v.name for v in graph.outputs] == ["output_0", "output_1", "output_2"]
    to_model(graph)


def test_subgraphs_are_opaque() -> None:
    def both(x: Any) -> Any:
        def double(x: Any) -> Any:
            return x + x

        def zero(x: Any) -> Any:
            return x - x

        return [ox.cond(x.sum() > 0, double, zero, (x,)) for _ in range(2)]

    graph = record(both, {"x": X})
    before = results(graph, [X])
    optimize(graph)
    assert operators(graph).count("If") == 2
    assert all(same_bits(a, b) for a, b in zip(before, results(graph, [X]), strict=True))


def test_sizes_that_values_decide_are_not_trusted() -> None:
    def chosen(x: Any) -> Any:
        places = ops.NonZero(x)
        return ops.Shape(places), ops.Reshape(places, ops.Shape(places)), ops.Shape(x)

    graph = record(chosen, {"x": X})
    assert not fixed_values(graph) & {v for node in graph.nodes[:1] for v in node.outputs}
    optimize(graph)
    fewer = ox.from_numpy(np.float32([[1, 0, 0], [0, 0, 0]]))
    sizes, places, of_x = results(graph, [fewer])
    assert sizes.tolist() == [2, 1] and places.shape == (2, 1) and of_x.tolist() == [2, 3]


def test_named_sizes_are_not_trusted() -> None:
    graph = record(lambda x: x * ops.Shape(x)[0].float(), {"x": X}, dims={"x": ["batch", 3]})
    optimize(graph)
    assert "Shape" in operators(graph)
    np.testing.assert_array_equal(results(graph, [ox.ones(5, 3)])[0], np.full((5, 3), 5, np.float32))


@rows("narrow", [np.bool_, np.int8, np.uint16, np.int32, np.int64, np.float16, np.float32])
@rows("wide", [np.uint8, np.int16, np.int64, np.float16, np.float32, np.float64])
def test_which_types_hold_all_values_of_others(narrow: type, wide: type) -> None:
    lossy = (narrow, wide) == (np.int64, np.float64)  # which NumPy calls safe
    assert keeps_all(np.dtype(narrow), np.dtype(wide)) == (np.can_cast(narrow, wide) and not lossy)


def test_what_moves_nothing_goes() -> None:
    def still(x: Any) -> Any:
        same = ops.CenterCropPad(ops.Tile(x, ox.tensor([1, 1])), ox.tensor([2, 3]))
        return ops.Pow(same, ops.Expand(ox.full((1, 3), 2.0), ox.tensor([2, 3])))

    graph = record(still, {"x": ox.ones(2, 3)})
    merge_movement(graph)
    remove_dead(graph)
    assert [node.op_type for node in graph.nodes] == ["Pow"]


def test_the_input_of_prelu_stays_expanded() -> None:
    """Its weight is broadcast to it, and not the other way round."""
    graph = record(
        lambda x, w: ops.PRelu(ops.Expand(x, ox.tensor([2, 3])), w), {"x": ox.ones(1, 3), "w": ox.ones(2, 3)}
    )
    merge_movement(graph)
    remove_dead(graph)
    assert [node.op_type for node in graph.nodes] == ["Expand", "PRelu"]
