"""A Scan over nothing, along an axis behind the first, ends ONNX Runtime's process: nothing empty goes in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from ox.errors import ServeError
from ox.serve import ModelConfig, RequestLimits, Server
from ox.serve.repository.model import Model

FLOAT = TensorProto.FLOAT


@pytest.fixture
def scan(build: Any) -> Path:
    """Running sums over the second axis, which the file leaves open."""
    infos = [helper.make_tensor_value_info(name, FLOAT, None) for name in ("s", "e", "n", "o")]
    nodes = [helper.make_node("Add", ["s", "e"], ["n"]), helper.make_node("Identity", ["n"], ["o"])]
    body = helper.make_graph(nodes, "body", infos[:2], infos[2:])
    axes = {"num_scan_inputs": 1, "scan_input_axes": [1], "scan_output_axes": [1]}
    steps = [("Gather", ["x", "zero"], ["first"], {"axis": 1}), ("Sub", ["first", "first"], ["start"], {}),
             ("Scan", ["start", "x"], ["end", "y"], {**axes, "body": body})]  # fmt: skip
    dims = ["batch", "time", 4]
    path = build("scan", steps, {"x": (FLOAT, dims)}, {"y": (FLOAT, dims)}, {"zero": np.array(0)})
    assert isinstance(path, Path)
    return path


def test_refused(scan: Path, connect: Any) -> None:
    model = Model(scan, ModelConfig(device="cpu"), RequestLimits())
    with pytest.raises(ServeError, match="is empty") as caught:
        model.signature.rows_and_key({"x": np.ones((2, 0, 4), np.float32)})
    assert caught.value.status == 400
    with Server([scan], options=ModelConfig(device="cpu")) as server, connect(server) as client:
        for rows, time in ((2, 0), (2, 3), (1, 0), (1, 2)):
            tensor = {"name": "x", "shape": [rows, time, 4], "datatype": "FP32", "data": [1.0] * (rows * time * 4)}
            status, _, body = client.ask("POST", "/v2/models/scan/infer", json.dumps({"inputs": [tensor]}).encode())
            assert (status, b"is empty" in body) == ((200, False) if time else (400, True)), body


def test_allowed_elsewhere(build: Any) -> None:
    dims = ["batch", "time"]
    path = build("relu", [("Relu", ["x"], ["y"], {})], {"x": (FLOAT, dims)}, {"y": (FLOAT, dims)})
    feed = {"x": np.ones((2, 0), np.float32)}
    assert Model(path, ModelConfig(device="cpu"), RequestLimits()).signature.rows_and_key(feed)[0] == 2
