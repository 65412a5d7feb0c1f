"""Graphs that nobody meant to be run: an answer in words, never an exception, never a long time."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, defs, helper, numpy_helper
from rows import rows

from ox.serve.runtime.row_independence import rows_mix
from ox.serve.runtime.row_independence.size import B, Symbols, TooIntricate, batch_factor, divide

FLOAT = TensorProto.FLOAT


def made(nodes: list[Any], dims: Any = ("batch", 4), weights: Any = ()) -> ModelProto:
    x = helper.make_tensor_value_info("x", FLOAT, dims)
    graph = helper.make_graph(nodes, "g", [x], [helper.make_tensor_value_info("y", FLOAT, None)], list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_cycles_missing_inputs_and_outputs() -> None:
    cycle = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Add", ["a", "x"], ["b"])]
    assert "reads 'b'" in str(rows_mix(made([*cycle, helper.make_node("Identity", ["b"], ["y"])])))
    assert rows_mix(made([helper.make_node("Relu", ["x"], ["z"])])) == "nothing makes the output 'y'"
    assert "its own" not in str(rows_mix(made([helper.make_node("Relu", ["y"], ["y"])])))
    assert rows_mix(ModelProto()) is None or isinstance(rows_mix(ModelProto()), str)


@rows("dims", [None, [], [1, 4], ["batch", "batch"], [None], ["batch", -3], ["", ""]])
def test_inputs_of_any_form(dims: Any) -> None:
    found = rows_mix(made([helper.make_node("Relu", ["x"], ["y"])], dims))
    assert (found is None) == (dims in ([None], ["batch", -3], ["", ""]))


def test_vectors_that_are_joined_with_themselves() -> None:
    """2^40 numbers are not followed one by one; the smaller graphs come first, and fail without harm."""
    for dtype in (np.float32, np.int64):
        for turns in (10, 18, 40):
            nodes = [helper.make_node("Concat", [f"k{i}"] * 2, [f"k{i + 1}"], axis=0) for i in range(turns)]
            nodes += [helper.make_node("Shape", [f"k{turns}"], ["s"]), helper.make_node("Cast", ["s"], ["u"], to=FLOAT)]
            model = made([*nodes, helper.make_node("Add", ["x", "u"], ["y"])])
            model.graph.initializer.append(numpy_helper.from_array(np.ones(1, dtype), "k0"))
            tracemalloc.start()
            assert rows_mix(model) is None
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
            tracemalloc.stop()


def test_deep_nesting() -> None:
    inner: Any = helper.make_node("Relu", ["x"], ["b"])
    end = [helper.make_tensor_value_info("b", FLOAT, None)]
    plain = helper.make_graph([helper.make_node("Relu", ["x"], ["b"])], "g", [], end)
    for _ in range(18):
        graph = helper.make_graph([inner], "g", [], end)
        inner = helper.make_node("If", ["c"], ["b"], then_branch=graph, else_branch=plain)
    inner.output[0] = "y"
    condition = numpy_helper.from_array(np.array(True), "c")
    assert "too deeply" in str(rows_mix(made([inner], weights=[condition])))


@rows("name", sorted({s.name for s in defs.get_all_schemas() if s.domain == ""}))
def test_every_operator_without_inputs_and_with_too_many(name: str) -> None:
    for inputs in ([], ["x"], ["x"] * 12, ["", "x"]):
        for attributes in ({}, {"axis": 1 << 60, "axes": [-(1 << 60)], "perm": [7], "equation": "??->?", "to": -5}):
            found = rows_mix(made([helper.make_node(name, inputs, ["y"], **attributes)]))
            assert found is None or isinstance(found, str)


def test_absurd_sizes_and_damaged_constants() -> None:
    huge = TensorProto(name="s", data_type=TensorProto.INT64, dims=[1 << 60], raw_data=b"1234")
    assert "not known" in str(rows_mix(made([helper.make_node("Reshape", ["x", "s"], ["y"])], weights=[huge])))
    torn = TensorProto(name="s", data_type=TensorProto.INT64, dims=[2], raw_data=b"1234")
    assert rows_mix(made([helper.make_node("Reshape", ["x", "s"], ["y"])], weights=[torn])) is not None
    away = TensorProto(name="s", data_type=TensorProto.INT64, dims=[2], data_location=TensorProto.EXTERNAL)
    assert rows_mix(made([helper.make_node("Reshape", ["x", "s"], ["y"])], weights=[away])) is not None


def test_sizes_that_grow() -> None:
    """Each node squares the polynomial of the one before."""
    nodes = [helper.make_node("Shape", ["x"], ["s0"], start=1)]
    for at in range(40):
        nodes.append(helper.make_node("Mul", [f"s{at}", f"s{at}"], [f"m{at}"]))
        nodes.append(helper.make_node("Add", [f"m{at}", f"s{at}"], [f"s{at + 1}"]))
    nodes.append(helper.make_node("Reshape", ["x", "s40"], ["y"]))
    assert rows_mix(made(nodes, ("batch", "t"))) is not None
    with pytest.raises(TooIntricate):
        size: Any = Symbols().fresh() + 1
        for _ in range(9):
            size = size * size


def test_polynomials() -> None:
    symbols = Symbols()
    s, t = symbols.fresh(), symbols.fresh()
    assert B * s - s * B == 0 and (s + 1) * 2 - 2 == s * 2 and 3 - (3 - s) == s
    assert divide(B * s * 6, s * 2) == B * 3 and divide(B, s) is None and divide(7, 2) is None and divide(s, 0) is None
    assert divide((s + t) * (s + 1), s + 1) == s + t and divide(s * s + 1, s + 1) is None
    assert batch_factor(B * s) == s and batch_factor(B + 1) is None and batch_factor(s) is None
    assert batch_factor(B * B) is None and batch_factor(symbols.result("div", B, 2)) is None
    assert symbols.result("div", s, 2) == symbols.result("div", s, 2) != symbols.result("div", t, 2)
