"""Statistics of BatchNormalization in training mode stay as they are while ONNX Runtime runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from ox.export import quantize
from ox.graph.contract import Array
from ox.graph.training_statistics import keep_statistics, overwrites
from ox.serve import ModelConfig, RequestLimits
from ox.serve.repository.model import Model

FLOAT, MOMENTUM = TensorProto.FLOAT, 0.9
STATISTICS = {"m": np.full(3, 0.5, np.float32), "v": np.full(3, 2, np.float32)}
W = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
KINDS = ["initializers", "inputs", "also read", "in a branch", "in a function"]


def foreign(kind: str) -> onnx.ModelProto:
    """A product and a BatchNormalization in training mode, whose new statistics are not outputs themselves."""

    def info(name: str, *dims: Any) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, FLOAT, dims)

    stored = {"w": W, "s": np.ones(3, np.float32), "b": np.zeros(3, np.float32)}
    inputs = [info("x", "n", 8)]
    if kind == "inputs":
        inputs += [info("m", 3), info("v", 3)]
    else:
        stored |= STATISTICS
    nodes = [
        helper.make_node("BatchNormalization", ["z", "s", "b", "m", "v"], ["y", "m2", "v2"], training_mode=1),
        helper.make_node("Neg", ["m2"], ["o1"]),
        helper.make_node("Neg", ["v2"], ["o2"]),
    ]
    product, functions = helper.make_node("MatMul", ["x", "w"], ["z"]), []
    outputs = [info("y", "n", 3), info("o1", 3), info("o2", 3)]
    if kind == "also read":
        nodes.append(helper.make_node("Neg", ["m"], ["o3"]))
        outputs.append(info("o3", 3))
    if kind == "in a branch":
        branch = helper.make_graph(nodes, "branch", [], outputs)
        other = helper.make_graph([helper.make_node("Identity", [n], [o]) for n, o in
                                   (("z", "y"), ("m", "o1"), ("v", "o2"))], "other", [], outputs)  # fmt: skip
        inputs.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
        nodes = [helper.make_node("If", ["c"], ["y", "o1", "o2"], then_branch=branch, else_branch=other)]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    if kind == "in a function":
        ends = ["z", "s", "b", "m", "v"], ["y", "o1", "o2"]
        functions = [helper.make_function("own", "Norm", *ends, nodes, opsets[:1])]
        nodes = [helper.make_node("Norm", *ends, domain="own")]
    weights = [numpy_helper.from_array(array, name) for name, array in stored.items()]
    graph = helper.make_graph([product, *nodes], "foreign", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions)
    onnx.checker.check_model(model, full_check=True)
    return model


def feed(kind: str) -> dict[str, Array]:
    sent: dict[str, Array] = {"x": np.random.default_rng(1).standard_normal((6, 8)).astype(np.float32)}
    if kind == "inputs":
        sent |= {name: array.copy() for name, array in STATISTICS.items()}
    if kind == "in a branch":
        sent["c"] = np.array(True)
    return sent


def expected(x: Array) -> list[Array]:
    """By ONNX's definition of the operator."""
    z = x @ W
    mean, variance = z.mean(0), z.var(0)
    new = [MOMENTUM * STATISTICS[name] + (1 - MOMENTUM) * now for name, now in (("m", mean), ("v", variance))]
    return [(z - mean) / np.sqrt(variance + 1e-5), -new[0], -new[1]]


def check(run: Any, kind: str, tolerance: float) -> None:
    """Two runs give what they should, and leave what they are given."""
    for _ in range(2):
        sent, before = feed(kind), feed(kind)
        got = run(sent)
        assert all(np.array_equal(sent[name], before[name]) for name in before)
        for value, right in zip(got, expected(sent["x"]), strict=False):
            assert np.allclose(value, right, atol=tolerance)
        if kind == "also read":
            assert np.allclose(got[3], -STATISTICS["m"])


@pytest.mark.parametrize("kind", KINDS)
def test_in_a_session(kind: str) -> None:
    model = foreign(kind)
    assert overwrites(model) and keep_statistics(model)
    onnx.checker.check_model(model, full_check=True)
    count = len(model.SerializeToString())
    assert not overwrites(model) and not keep_statistics(model) and len(model.SerializeToString()) == count
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    check(lambda sent: session.run(None, sent), kind, 1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_served(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "foreign.onnx"
    onnx.save(foreign(kind), path, save_as_external_data=True, location="weights", size_threshold=0)
    model = Model(path, ModelConfig("cpu", max_rows=0, instances=1, threads=1), RequestLimits())
    check(model.engine.run, kind, 1e-5)


@pytest.mark.parametrize("kind", ["initializers", "inputs"])
@pytest.mark.parametrize(("scheme", "tolerance"), [("float16", 0.01), ("int8-dynamic", 0.1)])
def test_quantized(kind: str, scheme: str, tolerance: float, tmp_path: Path) -> None:
    onnx.save(foreign(kind), tmp_path / "foreign.onnx")
    quantize(tmp_path / "foreign.onnx", tmp_path / "small.onnx", scheme)
    session = onnxruntime.InferenceSession(tmp_path / "small.onnx", providers=["CPUExecutionProvider"])
    check(lambda sent: session.run(None, sent), kind, tolerance)


def test_what_overwrites_nothing() -> None:
    model = foreign("initializers")
    (norm,) = (node for node in model.graph.node if node.op_type == "BatchNormalization")
    norm.attribute[0].i = 0
    assert not overwrites(model) and not keep_statistics(model)
