"""What a Scan reads from outside, as state that it carries."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

import ox
from ox.graph.record.recording import record
from ox.graph.writer.scan_captures import carry_captures
from ox.graph.writer.write import to_model


def model(captures: bool) -> onnx.ModelProto:
    """A loop that reads two outer values, one of them twice, or none."""

    def run(x: Any, w: Any, bias: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = (h @ w + bias).tanh() + bias * x if captures else (h * x).tanh()
            return h, h * 2

        return ox.scan(step, bias, x)

    return to_model(record(run, {"x": ox.randn(4, 3), "w": ox.randn(3, 3), "bias": ox.randn(3)}))


def scan_of(made: onnx.ModelProto) -> onnx.NodeProto:
    (node,) = [node for node in made.graph.node if node.op_type == "Scan"]
    return node


def test_the_loop_reads_only_what_it_is_given() -> None:
    made = model(captures=True)
    before = made.SerializeToString(deterministic=True)
    carried = carry_captures(made)
    assert made.SerializeToString(deterministic=True) == before, "a copy is changed"
    node, old = scan_of(carried), scan_of(made)
    assert len(node.input) == len(old.input) + 2 and len(node.output) == len(old.output) + 2
    body = node.attribute[0].g if node.attribute[0].name == "body" else node.attribute[1].g
    own = {i.name for i in body.input} | {y for each in body.node for y in each.output}
    assert all(x in own for each in body.node for x in each.input)
    onnx.checker.check_model(carried, full_check=True)
    random = np.random.default_rng(0)
    feeds = {
        i.name: random.random([d.dim_value for d in i.type.tensor_type.shape.dim], np.float32) for i in made.graph.input
    }
    results = [
        ort.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
        for each in (made, carried)
    ]
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_loop_that_reads_nothing_outside_stays() -> None:
    made = model(captures=False)
    assert carry_captures(made) is made
