"""Inputs whose default value is in the file: they may be given or left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from ox.serve import ModelConfig, Server

FLOAT = TensorProto.FLOAT
BIAS = np.array([10, 20], np.float32)
PATH = "/v2/models/shift/infer"


@pytest.fixture(scope="module")
def server(build: Any) -> Iterator[Server]:
    """`shift`: y = x + bias, where bias has a value; and `weights`, whose exporter lists all its weights as inputs."""
    x, vector = {"x": (FLOAT, ["batch", 2])}, (FLOAT, [2])
    shift = build("shift", [("Add", ["x", "bias"], ["y"], {})], {**x, "bias": vector}, {"y": (FLOAT, ["batch", 2])},
                  {"bias": BIAS})  # fmt: skip
    names = [f"w{i}" for i in range(17)]
    sums = [("Sum", ["x", *names], ["y"], {})]
    weights = build("weights", sums, {**x, **dict.fromkeys(names, vector)}, {"y": (FLOAT, ["batch", 2])},
                    dict.fromkeys(names, BIAS))  # fmt: skip
    with Server([shift, weights], options=ModelConfig("cpu", max_rows=8, instances=1)) as running:
        yield running


def tensor(name: str, array: Any) -> dict[str, Any]:
    values = np.asarray(array, np.float32)
    return {"name": name, "shape": list(values.shape), "datatype": "FP32", "data": values.ravel().tolist()}


def as_json(client: Any, *tensors: dict[str, Any]) -> Any:
    status, _, reply = client.ask("POST", PATH, json.dumps({"inputs": tensors}).encode())
    return json.loads(reply)["outputs"][0]["data"] if status == 200 else json.loads(reply)["error"]


def as_binary(client: Any, *tensors: dict[str, Any]) -> Any:
    """The same with the values behind the JSON."""
    data = [np.array(each["data"], np.float32).tobytes() for each in tensors]
    inputs = [
        {**{k: v for k, v in each.items() if k != "data"}, "parameters": {"binary_data_size": len(part)}}
        for each, part in zip(tensors, data, strict=True)
    ]
    head = json.dumps({"inputs": inputs}).encode()
    headers = {"inference-header-content-length": str(len(head))}
    status, _, reply = client.ask("POST", PATH, head + b"".join(data), headers)
    assert status == 200, reply
    return json.loads(reply)["outputs"][0]["data"]


X = tensor("x", [[1, 2], [3, 4]])


@pytest.mark.parametrize("ask", [as_json, as_binary])
def test_given_or_left_out(client: Any, ask: Any) -> None:
    for bias in ([100, 200], [0, 0], [100, 200]):
        assert ask(client, X) == [11, 22, 13, 24]
        assert ask(client, X, tensor("bias", bias)) == [1 + bias[0], 2 + bias[1], 3 + bias[0], 4 + bias[1]]
        assert ask(client, tensor("bias", bias), X) == [1 + bias[0], 2 + bias[1], 3 + bias[0], 4 + bias[1]]


def test_requests_of_one_moment_keep_their_values(client: Any) -> None:
    """They are sent at once, and could be one batch."""
    biases = [None, [1, 1], [2, 2], None, [3, 3], [1, 1]]
    for bias in biases:
        given = [] if bias is None else [tensor("bias", bias)]
        body = json.dumps({"inputs": [tensor("x", [[0, 0]]), *given]}).encode()
        client.send(f"POST {PATH} HTTP/1.1\r\nhost: test\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    answers = [json.loads(client.reply()[2])["outputs"][0]["data"] for _ in biases]
    assert answers == [[10, 20] if bias is None else bias for bias in biases]


def test_a_request_that_gives_one_is_in_no_batch(server: Server) -> None:
    """No two keys are equal, and requests that leave it out are batched as ever."""
    signature = server.service.repository.find("shift").signature
    x = np.zeros((2, 2), np.float32)
    keys = [signature.rows_and_key({"x": x, "bias": BIAS}) for _ in range(2)]
    assert [rows for rows, _ in keys] == [2, 2] and keys[0][1] != keys[1][1]
    assert signature.rows_and_key({"x": x}) == signature.rows_and_key({"x": x})


def test_over_grpc(server: Server) -> None:
    grpc = pytest.importorskip("tritonclient.grpc", reason="gRPC's own client is not installed")
    with grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        for bias in (None, [100, 200], [1, 2], None):
            inputs = [grpc.InferInput("x", [1, 2], "FP32").set_data_from_numpy(np.zeros((1, 2), np.float32))]
            if bias is not None:
                given = grpc.InferInput("bias", [2], "FP32")
                inputs.append(given.set_data_from_numpy(np.array(bias, np.float32)))
            answer = client.infer("shift", inputs).as_numpy("y")
            assert answer.tolist() == [[10, 20] if bias is None else bias]


def test_what_is_wrong(client: Any) -> None:
    assert "expected x FP32 [batch, 2], bias FP32 [2] (optional)" in as_json(client, tensor("bias", [1, 2]))
    assert "has shape [3]; expected [2]" in as_json(client, X, tensor("bias", [1, 2, 3]))
    assert "appears twice" in as_json(client, X, tensor("bias", [1, 2]), tensor("bias", [1, 2]))
    assert "try 'bias'" in as_json(client, X, tensor("bia", [1, 2]))


def test_they_are_optional_where_clients_look(client: Any) -> None:
    metadata = json.loads(client.ask("GET", "/v2/models/shift")[2])["inputs"]
    assert [(each["name"], each.get("parameters")) for each in metadata] == [("x", None), ("bias", {"optional": True})]
    config = json.loads(client.ask("GET", "/v2/models/shift/config")[2])["input"]
    assert [(each["name"], each["dims"], each.get("optional")) for each in config] == [
        ("x", [2], None), ("bias", [2], True),
    ]  # fmt: skip
    weights = json.loads(client.ask("GET", "/v2/models/weights")[2])["inputs"]
    assert [each["name"] for each in weights] == ["x"]
