"""Graphs inside nodes, and functions: the same whichever way they go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

from ox.serve.runtime.row_independence import rows_mix

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name: str, kind: int = FLOAT, dims: Any = None) -> Any:
    return helper.make_tensor_value_info(name, kind, dims)


def body(nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> Any:
    return helper.make_graph(nodes, "body", inputs, outputs)


def made(nodes: list[Any], tail: list[Any], weights: dict[str, Any] | None = None, functions: Any = ()) -> ModelProto:
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", [info("x", dims=["batch", *tail])], [info("y")], constants)
    versions = [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10, functions=list(functions))


def branches(one: str, two: str, condition: str) -> Any:
    graphs = [body([helper.make_node(op, ["x", "x"], ["b"])], [], [info("b")]) for op in (one, two)]
    return helper.make_node("If", [condition], ["y"], name="choice", then_branch=graphs[0], else_branch=graphs[1])


def test_if_on_a_constant_on_a_size_on_rows_and_on_their_number() -> None:
    top = [helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0), helper.make_node("Greater", ["m", "one"], ["c"])]
    weights = {"one": np.array(1, np.float32), "yes": np.array(True), "two": np.array([2]), "at": np.array([1])}
    assert rows_mix(made([branches("Add", "Mul", "yes")], [4], weights)) is None
    assert "ReduceMax 'm'" in str(rows_mix(made([*top, branches("Add", "Mul", "c")], [4], weights)))
    for start, why in ((1, None), (0, "If 'choice' mixes rows (its condition depends on the rows)")):
        size = [helper.make_node("Shape", ["x"], ["s"], start=start, end=start + 1),
                helper.make_node("Greater", ["s", "two"], ["c"])]  # fmt: skip
        assert rows_mix(made([*size, branches("Add", "Mul", "c")], ["t"], weights)) == why


def test_a_branch_that_is_not_taken_does_not_matter() -> None:
    graphs = [body([helper.make_node(op, ["x"], ["b"])], [], [info("b")]) for op in ("Relu", "ReduceSum")]
    for yes, why in ((True, None), (False, "ReduceSum 'b' mixes rows (reduces over the batch axis)")):
        node = helper.make_node("If", ["c"], ["y"], then_branch=graphs[0], else_branch=graphs[1])
        assert rows_mix(made([node], [4], {"c": np.array(yes)})) == why
    unknown = [helper.make_node("IsNaN", ["w"], ["c"])]
    node = helper.make_node("If", ["c"], ["y"], then_branch=graphs[0], else_branch=graphs[1])
    assert "ReduceSum" in str(rows_mix(made([*unknown, node], [4], {"w": np.array(1, np.float32)})))


def loop(steps: list[Any], trips: str = "trips", condition: str = "", outputs: Any = ("y",), more: Any = ()) -> Any:
    nodes = [helper.make_node("Identity", ["go"], ["go_on"]), *steps]
    inputs = [info("i", INT, []), info("go", BOOL, []), info("s")]
    graph = body(nodes, inputs, [info("go_on", BOOL, []), info("n"), *more])
    return helper.make_node("Loop", [trips, condition, "x"], list(outputs), name="turns", body=graph)


def test_loop() -> None:
    weights = {"trips": np.array(3)}
    assert rows_mix(made([loop([helper.make_node("Add", ["s", "x"], ["n"])])], [4], weights)) is None
    mixing = [helper.make_node("CumSum", ["s", "zero"], ["n"])]
    assert "CumSum 'n'" in str(rows_mix(made([loop(mixing)], [4], {**weights, "zero": np.array(0)})))
    # What mixes only from the second turn on: the axes have been turned round.
    turning = [helper.make_node("Softmax", ["s"], ["p"], axis=1), helper.make_node("Transpose", ["p"], ["n"])]
    assert "one place or another" in str(rows_mix(made([loop(turning)], [4], weights)))
    size = helper.make_node("Shape", ["x"], ["rows"], end=1)
    found = rows_mix(made([size, loop([helper.make_node("Relu", ["s"], ["n"])], "rows")], [4]))
    assert "input 'rows' depends on the rows" in str(found)
    top = [helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0), helper.make_node("Cast", ["m"], ["c"], to=BOOL)]
    found = rows_mix(made([*top, loop([helper.make_node("Relu", ["s"], ["n"])], "trips", "c")], [4], weights))
    assert "ReduceMax 'm'" in str(found)


def test_loop_that_grows_and_collects() -> None:
    """A state that is longer each turn, and outputs of every turn on a new axis in front."""
    weights = {"trips": np.array(3), "axes": np.array([1])}
    steps = [helper.make_node("Concat", ["s", "x"], ["n"], axis=1)]
    summed = helper.make_node("ReduceSum", ["end", "axes"], ["y"])
    assert rows_mix(made([loop(steps, outputs=["end"]), summed], [4], weights)) is None
    steps = [helper.make_node("Add", ["s", "x"], ["n"]), helper.make_node("Relu", ["n"], ["o"])]
    collect = loop(steps, outputs=["end", "all"], more=[info("o")])
    turned = helper.make_node("Transpose", ["all"], ["y"], perm=[1, 0, 2])
    assert rows_mix(made([collect, turned], [4], weights)) is None
    assert "one row for each row" in str(
        rows_mix(made([collect, helper.make_node("Relu", ["all"], ["y"])], [4], weights))
    )


def test_loop_with_numbers_that_change() -> None:
    """The first turn resizes columns, the second one rows."""
    steps = [helper.make_node("Resize", ["s", "", "k"], ["r"], mode="nearest"),
             helper.make_node("ReduceMax", ["r", "axes"], ["n"]),
             helper.make_node("Identity", ["w"], ["k1"]), helper.make_node("Identity", ["go"], ["on"])]  # fmt: skip
    states = [info("s"), info("k")], [info("n"), info("k1")]
    go = info("go", BOOL, [])
    graph = body(steps, [info("i", INT, []), go, *states[0]], [info("on", BOOL, []), *states[1]])
    nodes = [helper.make_node("Loop", ["trips", "", "x", "first"], ["y", "last"], body=graph)]
    weights = {
        "trips": np.array(2),
        "first": np.ones(2, np.float32),
        "w": np.ones(2, np.float32),
        "axes": np.array([1]),
    }
    assert rows_mix(made(nodes, [1], weights)) is None
    assert rows_mix(made(nodes, [1], {**weights, "w": np.array([2, 1], np.float32)})) is not None


@pytest.mark.parametrize(("axis", "why"), [(1, None), (0, "goes over the batch axis")])
def test_scan(axis: int, why: str | None) -> None:
    graph = body([helper.make_node("Add", ["s", "e"], ["n"])], [info("s"), info("e")], [info("n")])
    first = helper.make_node("Gather", ["x", "zero"], ["start"], axis=1)
    node = helper.make_node("Scan", ["start", "x"], ["y"], body=graph, num_scan_inputs=1, scan_input_axes=[axis])
    found = rows_mix(made([first, node], [4, 4], {"zero": np.array(0)}))
    assert (found is None) if why is None else why in str(found)


def function(name: str, nodes: list[Any], inputs: list[str], attributes: Any = ()) -> Any:
    return helper.make_function("mine", name, inputs, ["r"], nodes, [helper.make_opsetid("", 21),
                                helper.make_opsetid("mine", 1)], list(attributes))  # fmt: skip


def test_functions() -> None:
    """Walked with the attributes of the call; ones that call themselves end."""
    softmax = helper.make_node("Softmax", ["a"], ["r"])
    softmax.attribute.append(AttributeProto(name="axis", type=AttributeProto.INT, ref_attr_name="along"))
    soft = function("Soft", [softmax], ["a"], ["along"])
    for along, why in ((1, None), (0, "Softmax 'r' mixes rows (works along the batch axis)")):
        call = helper.make_node("Soft", ["x"], ["y"], domain="mine", along=along)
        assert rows_mix(made([call], [4], functions=[soft])) == why
    again = function("Again", [helper.make_node("Again", ["a"], ["r"], domain="mine")], ["a"])
    found = rows_mix(made([helper.make_node("Again", ["x"], ["y"], domain="mine")], [4], functions=[again]))
    assert "nested too deeply" in str(found)
    doubling = [function(f"F{n}", [helper.make_node(f"F{n + 1}", ["a"], ["b"], domain="mine"),
                                   helper.make_node(f"F{n + 1}", ["b"], ["r"], domain="mine")], ["a"])
                for n in range(60)]  # fmt: skip
    found = rows_mix(made([helper.make_node("F0", ["x"], ["y"], domain="mine")], [4], functions=doubling))
    assert "nested too deeply" in str(found)


def test_a_function_by_an_operators_name() -> None:
    """A runtime may take its own."""
    nodes = [helper.make_node("Identity", ["a"], ["r"])]
    double = helper.make_function("", "ReduceSum", ["a"], ["r"], nodes, [helper.make_opsetid("", 21)])
    node = helper.make_node("ReduceSum", ["x"], ["y"], keepdims=1)
    assert "an operator and a function" in str(rows_mix(made([node], [4], functions=[double])))


def test_a_name_inside_a_function_is_not_the_one_outside() -> None:
    inside = [helper.make_node("Identity", ["scales"], ["r"])]
    call = helper.make_node("Out", ["x"], ["y"], domain="mine")
    found = rows_mix(made([call], [4], {"scales": np.ones(4, np.float32)}, [function("Out", inside, ["a"])]))
    assert "reads 'scales', which nothing before it makes" in str(found)
