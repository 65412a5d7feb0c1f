"""NaN and the infinities in JSON, where the server is told to write and read them; elsewhere they are refused."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from rows import rows

from ox.errors import ServeError
from ox.serve import ModelConfig, Server
from ox.serve.protocol.v2.document import load_json

DTYPES = {
    "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "INT32": TensorProto.INT32,
}
STRANGE = [1.5, math.nan, math.inf, -math.inf]


@pytest.fixture(scope="module")
def paths(build: Any) -> list[Any]:
    ends = {name: (kind, ["batch", 4]) for name, kind in DTYPES.items()}
    made = [build(name, [("Identity", ["x"], ["y"], {})], {"x": end}, {"y": end}) for name, end in ends.items()]
    both = {"x": ends["FP32"], "t": (TensorProto.STRING, ["batch", 1])}
    nodes = [("Identity", ["x"], ["y"], {}), ("Identity", ["t"], ["s"], {}), ("Log", ["x"], ["z"], {})]
    made.append(build("both", nodes, both, {"y": both["x"], "s": both["t"], "z": both["x"]}))
    return made


@pytest.fixture(scope="module")
def lenient(paths: list[Any]) -> Iterator[Server]:
    with Server(paths, options=ModelConfig(device="cpu", instances=1), json_nan=True) as running:
        yield running


@pytest.fixture(scope="module")
def strict(paths: list[Any]) -> Iterator[Server]:
    with Server(paths, options=ModelConfig(device="cpu", instances=1)) as running:
        yield running


def body(dtype: str, data: Any, **more: Any) -> bytes:
    tensor = {"name": "x", "shape": [len(data) // 4, 4], "datatype": dtype, "data": data}
    return json.dumps({"inputs": [tensor], **more}).encode()


@pytest.mark.parametrize("dtype", ["FP16", "FP32", "FP64"])
def test_there_and_back(lenient: Server, connect: Any, dtype: str) -> None:
    with connect(lenient) as client:
        for n in range(4):  # answers and requests of one form are remembered: all kinds of numbers go on being right
            for data in (STRANGE, [1.0, 2.0, 3.0, 4.0 + n], [*reversed(STRANGE), *STRANGE]):
                status, _, reply = client.ask("POST", f"/v2/models/{dtype}/infer", body(dtype, data, id=f"NaN {n}"))
                assert status == 200, reply
                answer = json.loads(reply)
                assert np.array_equal(answer["outputs"][0]["data"], data, equal_nan=True)
                assert answer["id"] == f"NaN {n}"


def test_text_is_left_alone(lenient: Server, connect: Any) -> None:
    words = ["null", "NaN", '"null", NaN, Infinity', "ü\u2028"]
    with connect(lenient) as client:
        for word in words * 2:
            tensors = [
                {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [0.0, -1.0, math.inf, 1.0]},
                {"name": "t", "shape": [1, 1], "datatype": "BYTES", "data": [word]},
            ]
            status, _, reply = client.ask("POST", "/v2/models/both/infer", json.dumps({"inputs": tensors}).encode())
            assert status == 200, reply
            outputs = {output["name"]: output["data"] for output in json.loads(reply)["outputs"]}
            assert outputs["s"] == [word] and outputs["y"] == [0.0, -1.0, math.inf, 1.0]
            assert np.array_equal(outputs["z"], [-math.inf, math.nan, math.inf, 0.0], equal_nan=True)
            assert b"[-Infinity,NaN,Infinity,0.0]" in reply


def test_both_ways_are_refused_unless_told(strict: Server, connect: Any) -> None:
    with connect(strict) as client:
        status, _, reply = client.ask("POST", "/v2/models/FP32/infer", body("FP32", STRANGE))
        assert status == 400 and "--json-nan" in json.loads(reply)["error"]
        tensors = [
            {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [0, 1, 2, 3]},
            {"name": "t", "shape": [1, 1], "datatype": "BYTES", "data": ["a"]},
        ]
        status, _, reply = client.ask("POST", "/v2/models/both/infer", json.dumps({"inputs": tensors}).encode())
        assert status == 500 and "--json-nan" in json.loads(reply)["error"]


@rows(
    ("data", "words"),
    [(b"[1, NaN, 3, 4]", "is not all INT32"), (b"[1, NaN, 3, 4", "not JSON"), (b"[1, Nan, 3, 4]", "not JSON"),
     (b"[1, +Infinity, 3, 4]", "not JSON"), (b"[1, NaN, 3, %s]" % (b"9" * 5000), "not JSON"),
     (b'[1, NaN, 3, "\\ud800"]', "not JSON"), (b'[1, NaN, 3, "\xff"]', "not JSON"),
     (b"[NaN, " + b"[" * 60_000 + b"]" * 60_000 + b"]", "not JSON"), (b"[1, NaN, 3]", "3 elements"),
     (b"[1, 2, 3, 4], NaN: 1", "not JSON"), (b"[NaN\x00, 2, 3, 4]", "not JSON")],
)  # fmt: skip
def test_what_is_wrong_all_the_same(lenient: Server, connect: Any, data: bytes, words: str) -> None:
    text = b'{"inputs": [{"name": "x", "shape": [1, 4], "datatype": "INT32", "data": %s}]}' % data
    with connect(lenient) as client:
        status, _, reply = client.ask("POST", "/v2/models/INT32/infer", text)
        assert status == 400 and words in json.loads(reply)["error"], reply
        assert client.ask("GET", "/v2/health/ready")[0] == 200


def test_other_places_of_a_request(lenient: Server, connect: Any) -> None:
    with connect(lenient) as client:
        for more in ({"parameters": {"priority": math.nan}}, {"parameters": {"timeout": math.inf}}, {"id": math.nan}):
            assert client.ask("POST", "/v2/models/FP32/infer", body("FP32", STRANGE, **more))[0] == 400
        shape = b'{"inputs": [{"name": "x", "shape": [NaN, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}'
        assert client.ask("POST", "/v2/models/FP32/infer", shape)[0] == 400
        assert client.ask("POST", "/v2/logging", b'{"log_info": NaN}')[0] in (400, 403)


def test_load_json() -> None:
    assert math.isnan(load_json(b'{"a": NaN}', nan=True)["a"])
    with pytest.raises(ServeError, match="NaN and Infinity are not JSON"):
        load_json(b'{"a": NaN}')
    with pytest.raises(ServeError, match="not a JSON object"):
        load_json(b"[NaN]", nan=True)
