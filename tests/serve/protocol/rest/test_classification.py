"""Classes are those of each row where the model is batched, and of the whole output where it is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from onnx import TensorProto

from ox.serve import ModelConfig, Server


@pytest.mark.parametrize(
    ("max_rows", "shape", "data"),
    [(None, [2, 2], ["9.000000:1", "3.000000:3", "8.000000:3", "6.000000:2"]), (0, [2], ["9.000000:1", "8.000000:7"])],
)
def test_rows_or_all(build: Any, connect: Any, max_rows: int | None, shape: Any, data: Any) -> None:
    ends = (TensorProto.FLOAT, ["batch", 4])
    path = build("rows", [("Identity", ["x"], ["y"], {})], {"x": ends}, {"y": ends})
    tensor = {"name": "x", "shape": [2, 4], "datatype": "FP32", "data": [1, 9, 2, 3, 4, 5, 6, 8]}
    wanted = {"inputs": [tensor], "outputs": [{"name": "y", "parameters": {"classification": 2}}]}
    options = ModelConfig(device="cpu", instances=1, max_rows=max_rows)
    with Server([path], options=options) as server, connect(server) as client:
        most = json.loads(client.ask("GET", "/v2/models/rows/config")[2])["max_batch_size"]
        status, _, body = client.ask("POST", "/v2/models/rows/infer", json.dumps(wanted).encode())
        assert status == 200 and (most == 0) == (max_rows == 0)
        (output,) = json.loads(body)["outputs"]
        assert (output["shape"], output["data"]) == (shape, data)
