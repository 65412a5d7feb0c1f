"""Which files are tried in a process of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from rows import rows

from ox.serve.runtime.source import read

F, INT64 = TensorProto.FLOAT, TensorProto.INT64
Nodes = list[tuple[str, list[str], list[str], dict[str, Any]]]


def suspect(build: Any, nodes: Nodes, dims: list[Any], **weights: Any) -> bool:
    arrays = {name: np.asarray(value) for name, value in weights.items()}
    path: Path = build("m", nodes, {"x": (F, dims)}, {"y": (F, None)}, arrays)
    return read(path).suspect


def expand(*shape: int) -> tuple[Nodes, dict[str, Any]]:
    return [("Expand", ["x", "s"], ["y"], {})], {"s": np.array(shape)}


def body(*nodes: Any) -> Any:
    value = helper.make_tensor_value_info
    ends = [value("i", INT64, []), value("c", TensorProto.BOOL, []), value("v", F, None)]
    return helper.make_graph(list(nodes), "body", ends, [value("d", TensorProto.BOOL, []), value("w", F, None)])


LOOP = body(helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Identity", ["v"], ["w"]))


@rows(
    ("nodes", "weights"),
    [
        ([("Loop", ["n", "", "x"], ["y"], {"body": LOOP})], {"n": 3}),
        ([("ConstantOfShape", ["s"], ["a"], {}), ("Add", ["x", "a"], ["y"], {})], {"s": [20_000, 20_000]}),
        (*expand(1 << 12, 1 << 12),),
        ([("Tile", ["x", "s"], ["y"], {})], {"s": [1 << 12, 1 << 12]}),
        ([("Pad", ["x", "s"], ["y"], {})], {"s": [0, 0, 1 << 12, 1 << 12]}),
        ([("Resize", ["x", "", "s"], ["y"], {})], {"s": np.array([1e4, 1e4], np.float32)}),
        ([("RandomNormal", [], ["a"], {"shape": [9999, 9999]}), ("Add", ["x", "a"], ["y"], {})], {}),
        # sizes that a client sends
        ([("Cast", ["x"], ["s"], {"to": INT64}), ("ConstantOfShape", ["s"], ["y"], {})], {}),
        ([("Cast", ["x"], ["i"], {"to": INT64}), ("Abs", ["i"], ["s"], {}), ("Expand", ["x", "s"], ["y"], {})], {}),
        # a shape, made large by a constant
        ([("Shape", ["x"], ["a"], {}), ("Mul", ["a", "n"], ["s"], {}), ("Expand", ["x", "s"], ["y"], {})],
         {"n": 1 << 23}),
        # large without any of these: an outer product, and a window
        ([("MatMul", ["a", "b"], ["c"], {}), ("MatMul", ["c", "c"], ["y"], {})],
         {"a": np.ones((3000, 1), np.float32), "b": np.ones((1, 3000), np.float32)}),
        ([("Add", ["a", "b"], ["y"], {})],
         {"a": np.ones((3000, 1), np.float32), "b": np.ones((1, 3000), np.float32)}),
        ([("MaxPool", ["x"], ["y"], {"kernel_shape": [1000, 1000]})], {}),
        ([("Shape", ["x"], ["a"], {}), ("Concat", ["a", "n"], ["s"], {"axis": 0}), ("Expand", ["x", "s"], ["y"], {})],
         {"n": [3000, 3000]}),
    ],
)  # fmt: skip
def test_what_is_tried_elsewhere(build: Any, nodes: Nodes, weights: dict[str, Any]) -> None:
    assert suspect(build, nodes, ["batch", 4], **weights)


@rows(
    ("nodes", "weights"),
    [
        ([("Relu", ["x"], ["y"], {})], {}),
        (*expand(8, 4),),
        ([("Pad", ["x", "s"], ["y"], {})], {"s": [0, 1, 0, 1]}),
        ([("Resize", ["x", "", "s"], ["y"], {})], {"s": np.array([1, 2], np.float32)}),
        ([("MatMul", ["x", "w"], ["y"], {})], {"w": np.ones((4, 8), np.float32)}),
        ([("Gather", ["w", "i"], ["y"], {})], {"w": np.ones((3000, 3000), np.float16), "i": [0]}),
        ([("MaxPool", ["x"], ["y"], {"kernel_shape": [7, 7]})], {}),
        ([("Frobnicate", ["x"], ["y"], {})], {}),
        # as PyTorch exports `x.expand(x.shape[0], 12, 64)` and the like
        ([("Shape", ["x"], ["a"], {}), ("Gather", ["a", "zero"], ["b"], {}), ("Concat", ["b", "n"], ["s"], {"axis": 0}),
          ("Expand", ["w", "s"], ["y"], {})], {"zero": [0], "n": [12, 64], "w": np.ones(64, np.float32)}),
        ([("Shape", ["x"], ["a"], {}), ("ConstantOfShape", ["a"], ["b"], {}), ("Add", ["x", "b"], ["y"], {})], {}),
        ([("Constant", [], ["a"], {"value_ints": [2, 4]}), ("Expand", ["x", "a"], ["y"], {})], {}),
    ],
)  # fmt: skip
def test_what_is_loaded_at_once(build: Any, nodes: Nodes, weights: dict[str, Any]) -> None:
    assert not suspect(build, nodes, ["batch", 4], **weights)


def test_operators_whose_run_depends_on_values(build: Any) -> None:
    """Such models do not run on the event loop, however short their trial was."""
    nodes, shape = expand(8, 4)
    ends: list[dict[str, Any]] = [{"x": (F, ["batch", 4])}, {"y": (F, None)}]
    assert read(build("long", nodes, *ends, shape)).may_run_long
    assert not read(build("short", [("Relu", ["x"], ["y"], {})], *ends)).may_run_long


def test_an_input_that_is_large(build: Any) -> None:
    nodes: Nodes = [("Relu", ["x"], ["y"], {})]
    assert suspect(build, nodes, [1, 3, 4000, 4000]) and not suspect(build, nodes, [1, 3, 1000, 1000])


def test_a_name_that_means_two_things(build: Any) -> None:
    """In a branch it is a small constant, in the other a large one: the walk follows neither."""
    value = helper.make_tensor_value_info

    def branch(size: int) -> Any:
        nodes = [
            helper.make_node("Constant", [], ["s"], value_ints=[size, size]),
            helper.make_node("Expand", ["x", "s"], ["z"]),
        ]
        return helper.make_graph(nodes, "branch", [], [value("z", F, None)])

    nodes: Nodes = [("If", ["c"], ["y"], {"then_branch": branch(9), "else_branch": branch(10)})]
    assert suspect(build, nodes, ["batch", 4], c=True)
