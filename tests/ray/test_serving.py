"""Serving on a Ray cluster of two nodes, one of which fails under load: every request is answered, some at a retry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from ox.distributed.ports import free_port

pytestmark = pytest.mark.slow


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file whose output is `-x`."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "negative", ends[:1], ends[1:])
    path = tmp_path / "negative.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def test_a_node_fails_under_load(run_script: Callable[..., Any], model: Path, tmp_path: Path) -> None:
    from ox.ray.serve_run import SETTINGS

    ports = set[str]()
    while len(ports) < 2:
        ports.add(str(free_port()))
    (line,) = run_script("cluster_serving.py", tmp_path, str(model), *ports, **SETTINGS)
    answer, status, message = line["grpc"]
    assert answer == [[-1.0, 2.0]] and status == "StatusCode.NOT_FOUND" and "no model 'other'" in message
    before, after = line["replicas"]
    assert before == 2 and after < 2
    assert line["right"] > 400
    assert not line.get("wrong") and not line.get("never answered"), line
