"""Small requests that would cost much: refused before they do."""

from __future__ import annotations

import gzip
import json
from typing import Any

import numpy as np
import pytest

from ox.errors import ServeError
from ox.graph.contract import TensorInfo
from ox.serve.http.encoding import unpack
from ox.serve.rest.codec import Codec
from ox.serve.v2.document import load_json
from ox.serve.v2.memory import Regions
from ox.serve.v2.request import Request, Wanted
from ox.serve.v2.signature import Signature

INFER = "/v2/models/mlp/infer"


def test_head_is_get_without_a_body(client: Any) -> None:
    for target in ("/v2", "/v2/models/mlp"):
        length = client.ask("GET", target)[1]["content-length"]
        client.send(b"HEAD %s HTTP/1.1\r\nhost: x\r\n\r\n" % target.encode())
        while not client.buffer.endswith(b"\r\n\r\n"):
            client.buffer += client.socket.recv(4096)
        assert client.buffer.startswith(b"HTTP/1.1 200") and f"content-length: {length}\r\n".encode() in client.buffer
        client.buffer = b""


def test_how_much_a_body_may_grow(client: Any) -> None:
    assert unpack(gzip.compress(b" " * 200_000), b"gzip", 1 << 24) == b" " * 200_000
    with pytest.raises(ServeError, match="too large once unpacked"):
        unpack(gzip.compress(b"{}," * 1_000_000), b"gzip", 1 << 24)


def test_brackets_are_counted() -> None:
    with pytest.raises(ServeError, match="too many lists and objects"):
        load_json(b"[" + b"{}," * (1 << 17) + b"1]")


def test_json_is_not_deep(client: Any) -> None:
    for text in (
        b"[" * 100_000,
        b'{"inputs":' * 5000 + b"1" + b"}" * 5000,
        b'{"inputs": ' + b"[" * 2000 + b"]" * 2000 + b"}",
    ):
        with pytest.raises(ServeError, match="not JSON"):
            load_json(text)
        status, _, body = client.ask("POST", INFER, text[:50_000])
        assert status == 400 and b"error" in body


def test_much_json_and_large_answers(client: Any) -> None:
    status, _, reply = client.ask("POST", INFER, b" " * 60_001)
    assert status == 413 and b"JSON is too large" in reply and b"60001 bytes" in reply
    entry = {"name": "x", "shape": [300, 64], "datatype": "FP32", "parameters": {"binary_data_size": 76800}}
    text = json.dumps({"inputs": [entry]}).encode()
    length = {"inference-header-content-length": str(len(text))}
    assert client.ask("POST", INFER, text + bytes(76800), length)[0] == 200


@pytest.mark.parametrize("size", [60_000, 120_000])
def test_an_answer_is_bounded(size: int) -> None:
    info = TensorInfo("y", "FP32", ("batch",))
    codec = Codec("m", "1", Signature([info], [info], 1 << 20), 200_000, Regions(1, 1))
    array = np.full(size, 1 / 3, np.float32)
    with pytest.raises(ServeError, match=r"answer is too large(.|\n)*fewer rows"):
        codec.encode(Request(None, {}, size, (), [Wanted(0, False)]), [array])
    codec.encode(Request(None, {}, size, (), [Wanted(0, True)]), [array[:40_000]])
