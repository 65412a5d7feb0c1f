"""The calls of the protocol, every form of tensors, and what is said to requests that are wrong."""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto
from rows import rows

from ox.serve import ModelConfig, Server
from ox.tolerance import compare

X = np.linspace(-1, 1, 128, dtype=np.float32).reshape(2, 64)
INFER = "/v2/models/mlp/infer"


def request(shape: Any = None, data: Any = None, **changes: Any) -> dict[str, Any]:
    """A valid request to the MLP, with changes to its input."""
    entry = {"name": "x", "shape": [2, 64], "datatype": "FP32", "data": X.ravel().tolist()}
    return {
        "inputs": [entry | ({"shape": shape} if shape else {}) | ({"data": data} if data is not None else {}) | changes]
    }


@pytest.fixture(scope="module")
def expected(mlp: Path) -> np.ndarray[Any, Any]:
    session = onnxruntime.InferenceSession(str(mlp), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": X})[0])


def test_metadata(client: Any) -> None:
    status, _, body = client.ask("GET", "/v2")
    assert status == 200 and json.loads(body) == {
        "name": "ox",
        "version": json.loads(body)["version"],
        "extensions": json.loads(body)["extensions"],
    }
    for target in ("/v2/models/mlp", "/v2/models/mlp/versions/1", "/v2/models/mlp/?x=1"):
        status, _, body = client.ask("GET", target)
        assert status == 200
        assert json.loads(body) == {
            "name": "mlp",
            "versions": ["1"],
            "platform": "onnx_onnxv1",
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 64]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 10]}],
        }


def test_health(client: Any, server: Server) -> None:
    ready = {"name": "mlp", "ready": True}
    bodies = {
        "/v2/health/live": {"live": True},
        "/v2/health/ready": {"ready": True},
        "/v2/models/mlp/ready": ready,
        "/v2/models/mlp/versions/1/ready": ready,
    }
    for target, expected in bodies.items():
        status, headers, body = client.ask("GET", target)
        assert (status, headers["content-type"], json.loads(body)) == (200, "application/json", expected)
    for target in ("/health", "/ping"):
        assert client.ask("GET", target)[0] == 200
    server.service.draining = True
    try:
        for target in ("/health", "/ping"):
            status, headers, body = client.ask("GET", target)
            assert status == 503 and "retry-after" in headers and b"not ready" in body
        for target, expected in bodies.items():
            status, _, body = client.ask("GET", target)
            if "live" in expected:
                assert (status, json.loads(body)) == (200, expected)
            else:
                assert (status, json.loads(body)) == (400, {**expected, "ready": False})
    finally:
        server.service.draining = False


@pytest.mark.parametrize("target", [INFER, "/v2/models/mlp/versions/1/infer", INFER + "?a=b", "/v2/models/ml%70/infer"])
def test_json(client: Any, expected: np.ndarray[Any, Any], target: str) -> None:
    status, headers, body = client.ask("POST", target, json.dumps(request() | {"id": "siebzehn"}).encode())
    assert status == 200 and headers["content-type"] == "application/json", body
    reply = json.loads(body)
    assert (reply["model_name"], reply["model_version"], reply["id"]) == ("mlp", "1", "siebzehn")
    (output,) = reply["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("y", "FP32", [2, 10])
    assert compare(np.array(output["data"], np.float32).reshape(2, 10), expected).ok


def test_nested_data(client: Any, expected: np.ndarray[Any, Any]) -> None:
    status, _, body = client.ask("POST", INFER, json.dumps(request(data=X.tolist())).encode())
    assert status == 200
    assert compare(np.array(json.loads(body)["outputs"][0]["data"], np.float32).reshape(2, 10), expected).ok


def binary(header: dict[str, Any], *blobs: bytes) -> tuple[bytes, dict[str, str]]:
    text = json.dumps(header).encode()
    return text + b"".join(blobs), {"inference-header-content-length": str(len(text))}


@pytest.mark.parametrize("padding", range(4))
def test_binary_both_ways(client: Any, expected: np.ndarray[Any, Any], padding: int) -> None:
    header = {
        "id": "x" * padding,  # moves the tensor off its alignment
        "parameters": {"binary_data_output": True},
        "inputs": [{"name": "x", "shape": [2, 64], "datatype": "FP32", "parameters": {"binary_data_size": 512}}],
    }
    status, headers, body = client.ask("POST", INFER, *binary(header, X.tobytes()))
    assert status == 200 and headers["content-type"] == "application/octet-stream"
    length = int(headers["inference-header-content-length"])
    (output,) = json.loads(body[:length])["outputs"]
    assert output["parameters"] == {"binary_data_size": 80} and "data" not in output
    assert compare(np.frombuffer(body[length:], np.float32).reshape(2, 10), expected).ok


def test_mixed_types_and_forms(client: Any) -> None:
    text = b"".join(struct.pack("<I", len(word)) + word for word in ("zwölf".encode(), b"", b"a", b"b"))
    image = np.arange(1, 9, dtype=np.float32)
    header = {
        "inputs": [
            {"name": "text", "shape": [2, 2], "datatype": "BYTES", "parameters": {"binary_data_size": len(text)}},
            {
                "name": "flags",
                "shape": [2, 3],
                "datatype": "BOOL",
                "data": [[True, False, True], [False, False, False]],
            },
            {"name": "image", "shape": [2, 1, 2, 2], "datatype": "FP32", "parameters": {"binary_data_size": 32}},
        ],
        "outputs": [
            {"name": "flags_out", "parameters": {"binary_data": True}},
            {"name": "text_out"},
            {"name": "image_out", "parameters": {"binary_data": True}},
        ],
    }
    status, headers, body = client.ask("POST", "/v2/models/mixed/infer", *binary(header, text, image.tobytes()))
    assert status == 200, body
    length = int(headers["inference-header-content-length"])
    flags, words, picture = json.loads(body[:length])["outputs"]
    assert flags == {
        "name": "flags_out",
        "datatype": "BOOL",
        "shape": [2, 3],
        "parameters": {"binary_data_size": 6},
    }
    assert words == {"name": "text_out", "datatype": "BYTES", "shape": [2, 2], "data": ["zwölf", "", "a", "b"]}
    assert picture["shape"] == [2, 1, 2, 2]
    assert body[length:] == bytes([0, 1, 0, 1, 1, 1]) + image.tobytes()


def test_bfloat16_only_as_bytes(build: Any, connect: Any) -> None:
    bf16 = (TensorProto.BFLOAT16, ["batch", 2])
    path = build("half", [("Identity", ["x"], ["y"], {})], {"x": bf16}, {"y": bf16})
    values = np.array([[1.5, -2], [0, 3]], ml_dtypes.bfloat16)
    entry = {"name": "x", "shape": [2, 2], "datatype": "BF16"}
    raw = entry | {"parameters": {"binary_data_size": 8}}
    with Server([path], options=ModelConfig(instances=1)) as server, connect(server) as client:
        body, headers = binary({"inputs": [raw], "parameters": {"binary_data_output": True}}, values.tobytes())
        status, headers, reply = client.ask("POST", "/v2/models/half/infer", body, headers)
        assert status == 200 and reply.endswith(values.tobytes()), reply
        status, _, reply = client.ask("POST", "/v2/models/half/infer", *binary({"inputs": [raw]}, values.tobytes()))
        assert status == 400 and b"binary_data" in reply
        status, _, reply = client.ask(
            "POST", "/v2/models/half/infer", json.dumps({"inputs": [entry | {"data": [1, 2, 3, 4]}]}).encode()
        )
        assert status == 400 and b"binary" in reply


@rows(
    ("name", "numbers"),
    [("INT8", [-128, 127]), ("UINT8", [0, 255]), ("INT32", [-(2**31), 1]), ("INT64", [-(2**63), 2**63 - 1]),
     ("UINT64", [0, 2**64 - 1]), ("FP16", [0.5, -2]), ("FP64", [1e300, -0.1])],
)  # fmt: skip
def test_every_number_type(build: Any, connect: Any, name: str, numbers: list[Any]) -> None:
    kinds = {"INT8": 3, "UINT8": 2, "INT32": 6, "INT64": 7, "UINT64": 13, "FP16": 10, "FP64": 11}
    ends = (kinds[name], ["batch", 1])
    path = build("echo", [("Identity", ["x"], ["y"], {})], {"x": ends}, {"y": ends})
    entry = {"name": "x", "shape": [2, 1], "datatype": name}
    with Server([path], options=ModelConfig(instances=1)) as server, connect(server) as client:
        body = json.dumps({"inputs": [entry | {"data": numbers}]}).encode()
        status, _, reply = client.ask("POST", "/v2/models/echo/infer", body)
        assert status == 200 and json.loads(reply)["outputs"][0]["data"] == numbers, reply
        for wrong in ([1e39 if name == "FP16" else 2**65, 1], ["1", 2], [None, 1], [[1], 2], [1, [2]], [{}, 1]):
            if name == "FP64" and wrong[0] == 2**65:
                continue
            body = json.dumps({"inputs": [entry | {"data": wrong}]}).encode()
            status, _, reply = client.ask("POST", "/v2/models/echo/infer", body)
            assert status == 400 and b"'x'" in reply, reply


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_compression_both_ways(client: Any, encoding: str) -> None:
    many = request(shape=[32, 64], data=np.ones(32 * 64).tolist())
    packed = {"gzip": gzip.compress, "deflate": zlib.compress}[encoding](json.dumps(many).encode())
    headers = {"content-encoding": encoding, "accept-encoding": f"br, {encoding}"}
    status, headers, body = client.ask("POST", INFER, packed, headers)
    assert status == 200 and headers["content-encoding"] == encoding
    plain = gzip.decompress(body) if encoding == "gzip" else zlib.decompress(body)
    assert json.loads(plain)["outputs"][0]["shape"] == [32, 10]


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [
        (gzip.compress(b" " * 10_000_000), "gzip", 413),
        (gzip.compress(b" " * 60_001), "gzip", 413),
        (gzip.compress(b"{}")[:-3], "gzip", 400),
        (b"no gzip", "gzip", 400),
        (b"{}", "br", 415),
    ],
    ids=["bomb", "much JSON", "cut", "not", "unknown"],
)
def test_bad_compression(client: Any, body: bytes, encoding: str, status: int) -> None:
    assert client.ask("POST", INFER, body, {"content-encoding": encoding})[0] == status


WRONG: list[tuple[str, Any, int, list[str]]] = [
    ("not json", b"{", 400, ["not JSON"]),
    ("not an object", b"[]", 400, ["object"]),
    ("not utf-8", b'{"inputs": "\xff"}', 400, ["UTF-8"]),
    ("empty", b"", 400, ["not JSON"]),
    ("deep", b"[" * 50_000, 400, ["depth"]),
    ("deep inside", b'{"inputs":' + b"[" * 1000 + b"]" * 1000 + b"}", 400, ["object"]),
    ("deep data", {"inputs": [{"name": "x", "shape": [2, 64], "datatype": "FP32", "data": [[[1]]]}]}, 400, ["nested"]),
    ("NaN", b'{"inputs":[{"name":"x","shape":[1,64],"datatype":"FP32","data":[0,NaN]}]}', 400, ["NaN", "binary"]),
    ("-Infinity", b'{"inputs":[{"name":"x","shape":[1,64],"datatype":"FP32","data":[-Infinity]}]}', 400, ["Infinity"]),
    ("no inputs", {}, 400, ["inputs", "datatype"]),
    ("inputs missing", {"inputs": []}, 400, ["'x' is missing", "[batch, 64]"]),
    ("input not an object", {"inputs": [5]}, 400, ["not an object"]),
    ("wrong name", request(name="xx"), 400, ["no input 'xx'", "x FP32 [batch, 64]", "try 'x'"]),
    ("name a list", request(name=["x"]), 400, ["no input"]),
    ("twice", {"inputs": request()["inputs"] * 2}, 400, ["twice"]),
    ("row shape", request(shape=[64], data=[0] * 64), 400, ["has shape [64]", "[batch, 64]", "try shape [1, 64]"]),
    ("wrong shape", request(shape=[2, 63]), 400, ["[2, 63]", "[batch, 64]"]),
    ("negative", request(shape=[-2, -64]), 400, ["[-2, -64]"]),
    ("huge", request(shape=[2**62, 64]), 400, ["shape"]),
    ("many dims", request(shape=[1] * 1000), 400, ["1000 dimensions"]),
    ("shape of text", request(shape=["2", 64]), 400, ["no shape"]),
    ("shape of bool", request(shape=[True, 64]), 400, ["no shape"]),
    ("one row of bool", request(shape=[True, 64], data=[0] * 64), 400, ["no shape"]),
    ("one row of floats", request(shape=[1, 64.0], data=[0] * 64), 400, ["no shape"]),
    ("bool", request(data=[True] + [0] * 127), 400, ["not all FP32", "true or false"]),
    ("bool in one row", request(shape=[1, 64], data=[0] * 63 + [False]), 400, ["not all FP32"]),
    ("nested bool", request(data=[[True] * 64] * 2), 400, ["not all FP32"]),
    ("a row for none", request(shape=[0, 64], data=[1.0]), 400, ["1 elements", "0 for shape [0, 64]"]),
    ("too many rows", request(shape=[5000, 64]), 413, ["5000 samples in one request"]),
    ("datatype", request(datatype="FP64"), 400, ["'FP64'", "expected FP32"]),
    ("count", request(data=[1.0, 2.0]), 400, ["2 elements", "128"]),
    ("text", request(data=["1"] * 128), 400, ["FP32"]),
    ("no data", request(data={}), 400, ["data"]),
    ("too large", request(data=[1e39] * 128), 400, ["FP32"]),
    ("id", request() | {"id": 5}, 400, ["'id'"]),
    ("parameters", request() | {"parameters": 5}, 400, ["'parameters'"]),
    ("output", request() | {"outputs": [{"name": "z"}]}, 400, ["no output 'z'", "'y'"]),
    ("outputs", request() | {"outputs": {"name": "y"}}, 400, ["'outputs'"]),
    ("output twice", request() | {"outputs": [{"name": "y"}] * 2}, 400, ["2 outputs", "at most 1"]),
    ("many outputs", request() | {"outputs": [{"name": "y"}] * 3000}, 400, ["3000 outputs", "each once"]),
    ("binary without header", request(parameters={"binary_data_size": 512}), 400, ["Inference-Header-Content-Length"]),
]  # fmt: skip


@rows(("body", "status", "words"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_wrong_requests(client: Any, body: Any, status: int, words: list[str]) -> None:
    got, _, reply = client.ask("POST", INFER, body if isinstance(body, bytes) else json.dumps(body).encode())
    message = json.loads(reply)["error"]
    assert got == status, message
    for word in words:
        assert word in message, message
    assert client.ask("GET", "/v2/health/ready")[0] == 200  # the same connection goes on


def test_no_hint_where_the_shape_is_too_large(client: Any) -> None:
    _, _, reply = client.ask("POST", INFER, json.dumps(request(shape=[2**50, 64])).encode())
    assert b"has shape" in reply and b"try" not in reply


def test_the_message_of_the_tour(build: Any, connect: Any) -> None:
    ends = [(TensorProto.FLOAT, ["batch", 1, 8, 8]), (TensorProto.FLOAT, ["batch", 64])]
    path = build("model", [("Flatten", ["image"], ["logits"], {})], {"image": ends[0]}, {"logits": ends[1]})
    with Server([path]) as server, connect(server) as client:
        body = b'{"inputs":[{"name":"image","shape":[1,8,8],"datatype":"FP32","data":[0]}]}'
        assert client.ask("POST", "/v2/models/model/infer", body)[::2] == (
            400,
            b'{"error":"input \'image\' has shape [1, 8, 8]; expected [batch, 1, 8, 8]; try shape [1, 1, 8, 8]"}',
        )


@pytest.mark.parametrize(
    ("size", "blob", "length"),
    [(512, 511, None), (512, 513, None), (508, 508, None), (-1, 512, None), (1.5, 512, None), (512, 512, "x"),
     (512, 512, "99999"), (512, 512, "-1"), (512, 512, "9" * 5000), (512, 512, "3")],
)  # fmt: skip
def test_wrong_byte_counts(client: Any, size: Any, blob: int, length: str | None) -> None:
    entry = {"name": "x", "shape": [2, 64], "datatype": "FP32", "parameters": {"binary_data_size": size}}
    body, headers = binary({"inputs": [entry]}, b"\0" * blob)
    if length:
        headers = {"inference-header-content-length": length}
    status, _, reply = client.ask("POST", INFER, body, headers)
    assert status in (400, 431) and b"error" in reply


def test_sizes_of_one_name_agree(client: Any) -> None:
    body = {
        "inputs": [
            {"name": "text", "shape": [1, 2], "datatype": "BYTES", "data": ["a", "b"]},
            {"name": "flags", "shape": [2, 3], "datatype": "BOOL", "data": [True] * 6},
            {"name": "image", "shape": [1, 1, 2, 2], "datatype": "FP32", "data": [1, 1, 1, 1]},
        ]
    }
    status, _, reply = client.ask("POST", "/v2/models/mixed/infer", json.dumps(body).encode())
    assert status == 400 and b"'batch' is 2 in input 'flags'" in reply


def test_an_output_is_given_once(client: Any) -> None:
    body = {
        "inputs": [
            {"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": ["a"]},
            {"name": "flags", "shape": [1, 3], "datatype": "BOOL", "data": [True] * 3},
            {"name": "image", "shape": [1, 1, 2, 2], "datatype": "FP32", "data": [1, 1, 1, 1]},
        ],
        "outputs": [{"name": "flags_out"}, {"name": "log"}, {"name": "flags_out", "parameters": {"binary_data": True}}],
    }
    status, _, reply = client.ask("POST", "/v2/models/mixed/infer", json.dumps(body).encode())
    assert status == 400 and b"'flags_out' is requested twice" in reply


def test_nan_in_an_output(client: Any) -> None:
    body = {
        "inputs": [
            {"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": ["null"]},
            {"name": "flags", "shape": [1, 3], "datatype": "BOOL", "data": [True] * 3},
            {"name": "image", "shape": [1, 1, 2, 2], "datatype": "FP32", "data": [1, -1, 1, 1]},
        ]
    }
    status, _, reply = client.ask("POST", "/v2/models/mixed/infer", json.dumps(body).encode())
    assert status == 500 and b"'log' holds NaN" in reply and b"binary_data" in reply
    body["outputs"] = [{"name": "text_out"}]
    assert client.ask("POST", "/v2/models/mixed/infer", json.dumps(body).encode())[0] == 200
    body["outputs"] = [{"name": "log", "parameters": {"binary_data": True}}]  # type: ignore[dict-item]
    status, _, reply = client.ask("POST", "/v2/models/mixed/infer", json.dumps(body).encode())
    assert status == 200 and np.isnan(np.frombuffer(reply[-16:], np.float32)[1])


def test_a_request_that_is_late_is_one_failure(client: Any, server: Server) -> None:
    stages = next(model for model in server.models if model.name == "mlp").stages
    before = dict(stages.failures)
    body = json.dumps(request() | {"parameters": {"timeout": 1}}).encode()
    assert client.ask("POST", INFER, body)[0] == 504
    assert stages.failures == before | {"REJECTED": before["REJECTED"] + 1}


@rows(
    ("method", "target", "status"),
    [("GET", "/v3", 404), ("GET", "/v2/models/nope", 404), ("POST", "/v2/models/nope/infer", 404),
     ("POST", "/v2/models/mlp/versions/2/infer", 404), ("GET", "/v2/models/mlp/versions", 404), ("GET", INFER, 405),
     ("DELETE", "/v2", 405), ("HEAD", "/v2/models/mlp/infer", 405), ("POST", "/v2/logging", 403),
     ("GET", "/%ff/%00", 404), ("GET", "http://[::1/v2", 400)],
)  # fmt: skip
def test_paths_and_methods(client: Any, method: str, target: str, status: int) -> None:
    if (method, target) == ("HEAD", INFER):
        client.send(b"HEAD /v2/models/mlp/infer HTTP/1.1\r\nhost: x\r\n\r\nGET /v2 HTTP/1.1\r\nhost: x\r\n\r\n")
        data = b""
        while b"extensions" not in data:
            data += client.socket.recv(4096)
        assert data.startswith(b"HTTP/1.1 405") and data.partition(b"\r\n\r\n")[2].startswith(b"HTTP/1.1 200")
        return
    got, headers, reply = client.ask(method, target)
    assert got == status and "error" in json.loads(reply)
    assert ("allow" in headers) == (status == 405)
