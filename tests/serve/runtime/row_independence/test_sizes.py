"""Sizes that may be 0, wrap round, or follow from the number of rows: no branch is left out because of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper
from rows import rows

from ox.serve.runtime.row_independence import rows_mix

FLOAT, INT32 = TensorProto.FLOAT, TensorProto.INT32
Nodes = list[tuple[Any, ...]]


def made(nodes: list[Any], constants: dict[str, Any], opset: int = 17, functions: Any = ()) -> ModelProto:
    """A model of x [batch, 4] and l [batch, t]."""
    infos = [helper.make_tensor_value_info(name, FLOAT, ["batch", size]) for name, size in (("x", 4), ("l", "t"))]
    stored = [numpy_helper.from_array(np.array(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_tensor_value_info("y", FLOAT, None)], stored)
    versions = [helper.make_opsetid("", opset), *(helper.make_opsetid(f.domain, 1) for f in functions)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10, functions=list(functions))


def branch(nodes: Nodes, output: str) -> Any:
    parts = [helper.make_node(op, inputs.split(), outputs.split(), **rest) for op, inputs, outputs, rest in nodes]
    return helper.make_graph(parts, output, [], [helper.make_tensor_value_info(output, FLOAT, None)])


def chosen(nodes: Nodes, constants: dict[str, Any], rows_if: bool = True, opset: int = 17) -> str | None:
    """Of a model that keeps rows apart if `c`, and mixes them otherwise; or the other way round."""
    kept = branch([("Identity", "x", "a", {})], "a")
    mixed = branch([("ReduceMax", "x", "m", {"keepdims": 0}), ("Add", "x m", "b", {})], "b")
    then, other = (kept, mixed) if rows_if else (mixed, kept)
    parts = [helper.make_node(n[0], n[1].split(), n[2].split(), **(n[3] if len(n) > 3 else {})) for n in nodes]
    parts.append(helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other))
    return rows_mix(made(parts, constants, opset))


T: Nodes = [("Shape", "l", "s"), ("Gather", "s one", "t")]
BATCH: Nodes = [("Shape", "x", "s"), ("Gather", "s zero", "n")]
ONE, ZERO, POWER, NONE32 = np.array(1), np.array(0), np.array(65536), np.array(0, np.int32)

MAYBE: dict[str, tuple[Nodes, dict[str, Any]]] = {
    "a quotient of 0": ([*T, ("Div", "t eight", "d"), ("Greater", "d zero", "c")], {"eight": np.array(8)}),
    "rows times 2 to the 32 as int32": (
        [*BATCH, ("Mul", "n power", "a"), ("Mul", "a power", "b"), ("Cast", "b", "d", {"to": INT32}),
         ("Greater", "d none", "c")], {"power": POWER, "none": NONE32}),
    "a power as int32": (
        [*T, ("Cast", "t", "a", {"to": INT32}), ("Mul", "a a", "b"), ("Mul", "b b", "d"), ("Mul", "d d", "e"),
         ("Greater", "e none", "c")], {"none": NONE32}),
    "a power as int64": (
        [*T, ("Mul", "t t", "b"), ("Mul", "b b", "d"), ("Mul", "d d", "e"), ("Greater", "e zero", "c")], {}),
    "a product of sizes as int32, divided": (
        [*T, ("Cast", "t", "a", {"to": INT32}), ("Mul", "a power", "b"), ("Div", "b power", "d"),
         ("Equal", "a d", "c")], {"power": POWER.astype(np.int32)}),
    "a product that is reduced": (
        [("ReduceProd", "many", "p", {"keepdims": 0}), ("Greater", "p none", "c")],
        {"many": np.array([65536, 65536], np.int32), "none": NONE32}),
    "an empty slice": (
        [("Slice", "l five far one1", "e"), ("Shape", "e", "s"), ("Gather", "s one", "t"), ("Greater", "t zero", "c")],
        {"five": np.array([5]), "far": np.array([1 << 40]), "one1": np.array([1])}),
    "an empty range": (
        [*T, ("Range", "five t one", "r"), ("Size", "r", "k"), ("Greater", "k zero", "c")], {"five": np.array(5)}),
    "nothing that is not zero": (
        [("NonZero", "zeros", "z"), ("Size", "z", "k"), ("Greater", "k zero", "c")], {"zeros": np.zeros(5000)}),
    "nothing that is left": (
        [("Compress", "zeros no", "z"), ("Size", "z", "k"), ("Greater", "k zero", "c")],
        {"zeros": np.zeros(5000), "no": np.zeros(5000, bool)}),
    "a quotient of rows": (
        [*BATCH, ("Div", "n two", "h"), ("Sub", "h zero", "d"), ("Greater", "d zero", "c")], {"two": np.array(2)}),
    "nothing, flattened": (
        [("Unsqueeze", "x last", "u"), ("Slice", "u none1 none1 last", "e"), ("Flatten", "e", "f"), ("Shape", "f", "s"),
         ("Gather", "s one", "t"), ("Greater", "t zero", "c")], {"last": np.array([2]), "none1": np.array([0])}),
    "the largest of what may be 0": (
        [*T, ("Div", "t eight", "d"), ("Min", "d one", "e"), ("Equal", "e one", "c")], {"eight": np.array(8)}),
}  # fmt: skip


@rows("name", MAYBE)
def test_a_condition_that_is_not_certain(name: str) -> None:
    nodes, constants = MAYBE[name]
    assert chosen(nodes, {"one": ONE, "zero": ZERO, **constants}) is not None


def test_a_condition_that_is_certain() -> None:
    """Sizes of inputs are 1 or more: requests with empty rows run alone."""
    assert chosen([*T, ("Greater", "t zero", "c")], {"one": ONE, "zero": ZERO}) is None
    assert chosen([*BATCH, ("Less", "n zero", "c")], {"zero": ZERO}, rows_if=False) is None


def node(op: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(op, ["" if name == "_" else name for name in inputs.split()], [output], **attributes)


def test_the_number_of_rows_as_another_size() -> None:
    rows = [node("Shape", "x", "s"), node("Gather", "s i0", "n")]
    four = [node("Reshape", "x r4", "x4"), node("Concat", "n k1 n k4", "sizes", axis=0)]
    resized = [node("Resize", "x4 _ _ sizes", "z", mode="nearest"), node("ReduceSum", "z ax", "w", keepdims=0),
               node("Add", "x w", "y")]  # fmt: skip
    constants = {"r4": np.array([-1, 1, 1, 4]), "i0": np.array([0]), "k1": np.array([1]), "k4": np.array([4]),
                 "ax": np.array([1, 2])}  # fmt: skip
    assert "Resize 'z'" in str(rows_mix(made([*rows, *four, *resized], constants)))
    # A constant that is cut, split or repeated by the number of rows, and then summed up.
    for cut in (
        [node("Slice", "numbers z0 n", "k")],
        [node("Slice", "wide z0 n", "k")],
        [node("NonZero", "wide", "any"), node("Slice", "any z0 n i0", "k")],
        [node("Concat", "n numbers", "k", axis=0)],
        [node("Expand", "numbers n", "k")],
        [node("Tile", "numbers n", "k")],
    ):
        total = [node("Cast", "k", "f", to=FLOAT), node("ReduceSum", "f", "t", keepdims=0), node("Add", "x t", "y")]
        given = {"i0": np.array([0]), "z0": np.array([0]), "numbers": np.arange(1024), "wide": np.arange(2000)}
        assert rows_mix(made([*rows, *cut, *total], given)) is not None, cut[-1].op_type


def test_a_loop_that_may_never_turn() -> None:
    """What it collects has no certain size then."""
    infos = [helper.make_tensor_value_info(name, kind, dims)
             for name, kind, dims in (("i", TensorProto.INT64, []), ("go", TensorProto.BOOL, []))]  # fmt: skip
    body = helper.make_graph(
        [node("Identity", "go", "on"), node("Identity", "row", "each")], "body", infos,
        [helper.make_tensor_value_info("on", TensorProto.BOOL, []),
         helper.make_tensor_value_info("each", FLOAT, None)],
    )  # fmt: skip
    nodes: list[Any] = [node("Shape", "l", "s"), node("Gather", "s one", "t"), node("Div", "t eight", "d"),
                        helper.make_node("Loop", ["d", ""], ["all"], body=body), node("Shape", "all", "as"),
                        node("Gather", "as one", "k"), node("Greater", "k zero", "c")]  # fmt: skip
    kept = branch([("Identity", "x", "a", {})], "a")
    mixed = branch([("ReduceMax", "x", "m", {"keepdims": 0}), ("Add", "x m", "b", {})], "b")
    nodes.append(helper.make_node("If", ["c"], ["y"], then_branch=kept, else_branch=mixed))
    constants = {"one": ONE, "zero": ZERO, "eight": np.array(8), "row": np.zeros(4, np.float32)}
    assert rows_mix(made(nodes, constants)) is not None


@rows(("domain", "name"), [("com.microsoft", "Pad"), ("com.microsoft.nchwc", "Conv"),
                                              ("ai.onnx.training", "Adam"), ("com.ms.internal.nhwc", "Conv"),
                                              ("ai.onnx", "Anything"), ("mine", None)])  # fmt: skip
def test_a_function_where_a_runtime_has_operators(domain: str, name: str | None) -> None:
    """It may run its own, whatever the body says."""
    plain = [helper.make_node("Identity", ["a"], ["b"])]
    function = helper.make_function(domain, name or "Pad", ["a"], ["b"], plain, [helper.make_opsetid("", 17)])
    call = helper.make_node(name or "Pad", ["x"], ["y"], domain=domain)
    found = rows_mix(made([call], {}, functions=[function]))
    assert found is None if name is None else "runtimes choose" in str(found)
