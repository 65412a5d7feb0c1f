"""What is switched off stays off: each request runs alone, as it came."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from ox.serve import ModelConfig, Server

FLOAT = TensorProto.FLOAT
SPIKE = 1e4
# y = x + (max(x) > 1000 ? max(x) : 0): rows drawn from a normal distribution do not show that it looks at all rows.
NODES: list[Any] = [
    ("ReduceMax", ["x"], ["top"], {"keepdims": 0}),
    ("Greater", ["top", "limit"], ["high"], {}),
    ("Where", ["high", "top", "zero"], ["add"], {}),
    ("Add", ["x", "add"], ["y"], {}),
]
WEIGHTS = {"limit": np.array(1000, np.float32), "zero": np.array(0, np.float32)}


@pytest.fixture
def spiky(build: Any, tmp_path: Path) -> Path:
    """A model folder whose rows look at one another."""
    folder = tmp_path / "models" / "spiky" / "1"
    folder.mkdir(parents=True)
    ends = {"x": (FLOAT, ["batch", 4])}, {"y": (FLOAT, ["batch", 4])}
    path = build("model", NODES, *ends, WEIGHTS, folder=folder)
    assert isinstance(path, Path)
    return path


def wrong_answers(server: Server, connect: Any, infer: Any) -> int:
    """Of 400 single rows from 16 connections, a fifth of them with a spike."""

    def one(seed: int) -> int:
        random, wrong = np.random.default_rng(seed), 0
        with connect(server) as client:
            for _ in range(25):
                x = random.standard_normal((1, 4)).astype(np.float32)
                if random.random() < 0.2:
                    x[0, 0] = SPIKE
                top = x.max()
                expected = x + (top if top > 1000 else 0)
                wrong += not np.allclose(infer(client, "spiky", x=x)["y"], expected)
        return wrong

    with ThreadPoolExecutor(16) as pool:
        return sum(pool.map(one, range(16)))


def test_an_explicit_zero(spiky: Path, connect: Any, infer: Any) -> None:
    root = spiky.parents[2]
    (root / "spiky" / "config.pbtxt").write_text("max_batch_size: 0\ninput { name: 'x' dims: [-1, 4] }")
    with Server([root], options=ModelConfig(instances=1, max_wait_ms=2)) as server:
        assert "batching off: max_batch_size is 0 (config.pbtxt)" in server.models[0].describe()
        assert wrong_answers(server, connect, infer) == 0
        assert server.models[0].stages.batch_rows.counts[0] == 400  # each alone
        told = server.service.model_config("spiky")
        assert told["max_batch_size"] == 0 and told["input"][0]["dims"] == [-1, 4]
        assert told["parameters"]["ox_batching_off"] == {"string_value": "max_batch_size is 0 (config.pbtxt)"}


@pytest.mark.parametrize("asked", ["", "max_batch_size: 8"], ids=["nothing said", "asked for batches"])
def test_rows_that_look_at_one_another(spiky: Path, connect: Any, infer: Any, asked: str) -> None:
    """The graph says it, whatever the drawn rows and the configuration say."""
    root = spiky.parents[2]
    (root / "spiky" / "config.pbtxt").write_text(asked)
    with Server([root], options=ModelConfig(instances=1, max_wait_ms=2)) as server:
        why = "ReduceMax 'top' mixes rows (reduces over the batch axis)"
        assert f"batching off: {why}" in server.models[0].describe()
        assert wrong_answers(server, connect, infer) == 0
        assert server.service.model_config("spiky")["parameters"]["ox_batching_off"] == {"string_value": why}


@pytest.mark.parametrize("where", ["toml", "options", "call"])
def test_zero_from_elsewhere(mlp: Path, tmp_path: Path, where: str) -> None:
    (tmp_path / "mlp.onnx").write_bytes(mlp.read_bytes())
    if where == "toml":
        (tmp_path / "ox.toml").write_text("[models.mlp]\nmax_rows = 0")
    options = ModelConfig("cpu", max_rows=0 if where == "options" else None)
    with Server([tmp_path], options=options, manage=True) as server:
        if where == "call":
            assert server.service.model_config("mlp")["max_batch_size"] > 0
            load = {"parameters": {"config": json.dumps({"max_batch_size": 0})}}
            assert post(server, "/v2/repository/models/mlp/load", load)[0] == 200
        told = server.service.model_config("mlp")
        assert told["max_batch_size"] == 0 and told["input"][0]["dims"] == [-1, 64]


def post(server: Server, target: str, body: Any) -> tuple[int, Any]:
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(server.url + target, json.dumps(body).encode()) as reply:
            return reply.status, json.loads(reply.read() or b"null")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_a_first_dimension_of_zero(mlp: Path, tmp_path: Path) -> None:
    """It is valid, also where it counts rows."""
    empty = {"inputs": [{"name": "x", "shape": [0, 64], "datatype": "FP32", "data": []}]}
    full = {"inputs": [{"name": "x", "shape": [2, 64], "datatype": "FP32", "data": [0.0] * 128}]}
    for most in (0, 4):
        with Server([mlp], options=ModelConfig(max_rows=most)) as server:
            for body, rows in ((empty, 0), (full, 2), (empty, 0)):
                status, answer = post(server, "/v2/models/mlp/infer", body)
                assert status == 200 and answer["outputs"][0]["shape"] == [rows, 10], answer
                assert len(answer["outputs"][0]["data"]) == 10 * rows


@pytest.mark.parametrize("most", [0, 4])
def test_empty_requests_do_not_run_together(mlp: Path, connect: Any, most: int) -> None:
    """No rows are not a part of a batch: each such request is a run of its own."""
    body = json.dumps({"inputs": [{"name": "x", "shape": [0, 64], "datatype": "FP32", "data": []}]}).encode()
    with Server([mlp], options=ModelConfig(max_rows=most, instances=1)) as server, connect(server) as client:
        head = f"POST /v2/models/mlp/infer HTTP/1.1\r\nhost: test\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        client.send((head + body) * 8)
        assert [json.loads(client.reply()[2])["outputs"][0]["shape"] for _ in range(8)] == [[0, 10]] * 8
        assert server.models[0].stages.batch_rows.counts[0] == 8
