"""Files whose nodes are in another order than they run in."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from rows import rows

import ox
from ox.errors import LoadError
from ox.graph.reader.order import in_order

CHAIN = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(4)]


def model(nodes: list[onnx.NodeProto], end: str = "v4") -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info(name, 1, ["n"]) for name in ("v0", end)]
    graph = helper.make_graph(nodes, "shuffled", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_every_order_of_a_chain() -> None:
    for nodes in itertools.permutations(CHAIN):
        assert list(in_order(nodes)) == CHAIN


@rows("seed", range(20))
def test_each_node_comes_behind_what_it_reads(seed: int) -> None:
    dice = random.Random(seed)
    nodes = [
        helper.make_node("Sum", [f"n{j}" for j in sorted(dice.sample(range(i), min(i, dice.randrange(4))))], [f"n{i}"])
        for i in range(30)
    ]
    dice.shuffle(nodes)
    made: set[str] = set()
    for n in in_order(nodes):
        assert made.issuperset(n.input)
        made.update(n.output)
    assert len(made) == 30


def test_an_order_that_is_right_stays() -> None:
    nodes = [CHAIN[0], helper.make_node("Exp", ["v0"], ["other"]), *CHAIN[1:]]
    assert in_order(nodes) is nodes


def test_a_file_is_loaded(tmp_path: Path) -> None:
    onnx.save(model(CHAIN[::-1]), tmp_path / "shuffled.onnx")
    x = np.array([-1, 2], np.float32)
    assert ox.export.load(tmp_path / "shuffled.onnx")(ox.from_numpy(x)).tolist() == [0, 2]


def test_what_a_branch_reads_comes_before_it(tmp_path: Path) -> None:
    inside = [
        helper.make_graph([helper.make_node(op, ["v1"], [op])], op, [], [helper.make_tensor_value_info(op, 1, ["n"])])
        for op in ("Neg", "Exp")
    ]
    condition = helper.make_node("Constant", [], ["c"], value=helper.make_tensor("c", onnx.TensorProto.BOOL, [], [1]))
    choice = helper.make_node("If", ["c"], ["y"], then_branch=inside[0], else_branch=inside[1])
    onnx.save(model([choice, CHAIN[0], condition], "y"), tmp_path / "branch.onnx")
    assert ox.export.load(tmp_path / "branch.onnx")(ox.from_numpy(np.array([3], np.float32))).tolist() == [-3]


def test_a_circle_is_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["v0", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    onnx.save(model(nodes, "b"), tmp_path / "circle.onnx")
    with pytest.raises(LoadError, match="which nothing before it makes"):
        ox.export.load(tmp_path / "circle.onnx")
