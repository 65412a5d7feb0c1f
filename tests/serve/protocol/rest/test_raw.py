"""Requests without any JSON: the body is the only input, and its shape follows from its size."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from rows import rows

from ox.serve import ModelConfig, Server

RAW = {"inference-header-content-length": "0", "content-type": "application/octet-stream"}
SHAPES: dict[str, tuple[int, list[Any]]] = {
    "rows": (TensorProto.FLOAT, ["batch", 4]),
    "steps": (TensorProto.INT64, ["batch", "steps", 2]),
    "fixed": (TensorProto.FLOAT16, [2, 3]),
    "open": (TensorProto.DOUBLE, [2, "n"]),
    "scalar": (TensorProto.INT32, []),
    "flags": (TensorProto.BOOL, ["batch", 3]),
    "wide": (TensorProto.FLOAT, ["batch", "high", "wide"]),
    "text": (TensorProto.STRING, ["batch", 1]),
    "word": (TensorProto.STRING, [1]),
    "words": (TensorProto.STRING, ["batch", "words"]),
    "pairs": (TensorProto.STRING, ["batch", 2]),
}


@pytest.fixture(scope="module")
def echoes(build: Any) -> Iterator[Server]:
    """Models that give their only input back."""
    paths = [build(name, [("Identity", ["x"], ["y"], {})], {"x": ends}, {"y": ends}) for name, ends in SHAPES.items()]
    ends = (TensorProto.FLOAT, ["batch", 4])
    paths.append(build("two", [("Add", ["a", "b"], ["y"], {})], {"a": ends, "b": ends}, {"y": ends}))
    with Server(paths, options=ModelConfig(device="cpu", instances=1)) as running:
        yield running


@rows(
    ("name", "array"),
    [("rows", np.arange(4, dtype=np.float32).reshape(1, 4)), ("rows", np.arange(12, dtype=np.float32).reshape(3, 4)),
     ("steps", np.arange(10).reshape(1, 5, 2)), ("steps", np.empty((1, 0, 2), np.int64)),
     ("fixed", np.arange(6, dtype=np.float16).reshape(2, 3)), ("open", np.arange(8.0).reshape(2, 4)),
     ("scalar", np.array(7, np.int32)), ("flags", np.array([[True, False, True]]))],
)  # fmt: skip
def test_the_shape_follows_from_the_size(echoes: Server, connect: Any, name: str, array: Any) -> None:
    with connect(echoes) as client:
        for _ in range(3):  # nothing that is remembered of a request changes the next
            status, headers, body = client.ask("POST", f"/v2/models/{name}/infer", array.tobytes(), RAW)
            assert status == 200 and headers["content-type"] == "application/octet-stream", body
            length = int(headers["inference-header-content-length"])
            reply = json.loads(body[:length])
            (output,) = reply["outputs"]
            assert output["shape"] == list(array.shape) and "id" not in reply
            assert output["parameters"] == {"binary_data_size": array.nbytes} and body[length:] == array.tobytes()


@rows("name", ["text", "word"])
@rows("text", ["", "zwölf", '{"id": "1", "inputs": []}'])
def test_a_body_of_text_is_one_element(echoes: Server, connect: Any, name: str, text: str) -> None:
    data = text.encode()
    with connect(echoes) as client:
        status, headers, body = client.ask("POST", f"/v2/models/{name}/infer", data, RAW)
        assert status == 200, body
        length = int(headers["inference-header-content-length"])
        assert body[length:] == struct.pack("<I", len(data)) + data
        assert "id" not in json.loads(body[:length])


def test_bytes_that_look_like_json_are_bytes(echoes: Server, connect: Any) -> None:
    data = b'{"id":"intruder"'
    with connect(echoes) as client:
        for _ in range(3):
            _, headers, body = client.ask("POST", "/v2/models/rows/infer", data, RAW)
            length = int(headers["inference-header-content-length"])
            assert "id" not in json.loads(body[:length]) and body[length:] == data


def test_a_packed_body(echoes: Server, connect: Any) -> None:
    data = np.arange(4, dtype=np.float32).tobytes()
    with connect(echoes) as client:
        headers = {**RAW, "content-encoding": "gzip"}
        status, _, body = client.ask("POST", "/v2/models/rows/versions/1/infer", gzip.compress(data), headers)
        assert status == 200 and body.endswith(data)


@rows(
    ("name", "size", "words"),
    [("rows", 15, "16 bytes"), ("rows", 0, "no rows"), ("steps", 15, "16 bytes"), ("fixed", 13, "[2, 3] has 12"),
     ("scalar", 0, "[] has 4"), ("open", 24, "16 bytes"), ("wide", 16, "more than one dimension of input"),
     ("words", 4, "one element"), ("pairs", 4, "one element"), ("two", 16, "2 inputs"), ("flags", 3, "neither 0 nor 1"),
     ("text", 2, "'utf-8' codec")],
)  # fmt: skip
def test_what_has_no_shape(echoes: Server, connect: Any, name: str, size: int, words: str) -> None:
    with connect(echoes) as client:
        status, _, body = client.ask("POST", f"/v2/models/{name}/infer", b"\xff" * size, RAW)
        assert status == 400 and words in json.loads(body)["error"], body
        assert client.ask("GET", "/v2/health/ready")[0] == 200


@pytest.fixture(scope="module")
def alone(build: Any) -> Iterator[Server]:
    """Models without batching: their first dimension is one like any other."""
    names = "rows", "wide", "text"
    paths = [build(n, [("Identity", ["x"], ["y"], {})], {"x": SHAPES[n]}, {"y": SHAPES[n]}) for n in names]
    with Server(paths, options=ModelConfig(device="cpu", instances=1, max_rows=0)) as running:
        yield running


@pytest.mark.parametrize(("name", "size", "shape"), [("rows", 0, [0, 4]), ("rows", 48, [3, 4]), ("wide", 16, None),
                                                     ("text", 5, None)])  # fmt: skip
def test_a_model_without_batching(alone: Server, connect: Any, name: str, size: int, shape: Any) -> None:
    with connect(alone) as client:
        status, headers, body = client.ask("POST", f"/v2/models/{name}/infer", bytes(size), RAW)
        if shape is None:
            assert status == 400, body
        else:
            length = int(headers["inference-header-content-length"])
            assert json.loads(body[:length])["outputs"][0]["shape"] == shape


def test_json_without_its_length_is_json(echoes: Server, connect: Any) -> None:
    document = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}
    with connect(echoes) as client:
        status, headers, body = client.ask("POST", "/v2/models/rows/infer", json.dumps(document).encode())
        assert status == 200 and headers["content-type"] == "application/json"
        assert json.loads(body)["outputs"][0]["data"] == [1, 2, 3, 4]
