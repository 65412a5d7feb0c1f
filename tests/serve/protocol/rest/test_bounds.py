"""Small requests that would cost much: refused before they do."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import numpy as np
import pytest
from rows import rows

from ox.errors import ServeError
from ox.graph.contract import TensorInfo, from_bytes
from ox.serve.protocol.rest.codec import Codec
from ox.serve.protocol.v2.document import load_json
from ox.serve.protocol.v2.request import Request, RequestedOutput
from ox.serve.protocol.v2.shared_memory import Regions
from ox.serve.protocol.v2.signature import Signature
from ox.serve.transport.http.encoding import decompress

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
    """What counts is what a body unpacks to: a blank image packs to a thousandth of its size."""
    status, _, reply = client.ask("POST", INFER, gzip.compress(bytes(150_000)), {"content-encoding": "gzip"})
    assert status == 413 and b"--limit body" in reply
    for blank in (np.zeros((1, 3, 224, 224), np.float32).tobytes(), bytes(16 << 20)):
        assert decompress(gzip.compress(blank), b"gzip", 16 << 20) == blank
        assert decompress(zlib.compress(blank), b"deflate", 16 << 20) == blank
    for size, most in ((1_000_001, 1_000_000), (20 << 20, 64 << 20)):  # more than a body, or 64 times and past 16 MiB
        with pytest.raises(ServeError, match=r"too large after decompression(.|\n)*--limit body") as caught:
            decompress(gzip.compress(bytes(size)), b"gzip", most)
        assert caught.value.status == 413
    noise = np.random.default_rng(0).bytes(1 << 20)
    assert decompress(gzip.compress(noise * 20), b"gzip", 64 << 20) == noise * 20


def test_brackets_are_counted() -> None:
    for tensors in (True, False):
        with pytest.raises(ServeError, match="too many lists and objects") as caught:
            load_json(b"[" + b"{}," * (1 << 17) + b"1]", tensors=tensors)
        assert ("binary" in str(caught.value)) == tensors


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
    codec = Codec("m", "1", Signature([info], [info], 1 << 20, 0), 200_000, Regions(1, 1))
    array = np.full(size, 1 / 3, np.float32)
    with pytest.raises(ServeError, match=r"response is too large(.|\n)*fewer samples") as caught:
        codec.encode(Request(None, {}, size, (), [RequestedOutput(0, False)]), [array])
    assert caught.value.status == 413  # as over gRPC
    codec.encode(Request(None, {}, size, (), [RequestedOutput(0, True)]), [array[:40_000]])


TEXTS = [TensorInfo("s", "BYTES", ("batch", "words")), TensorInfo("t", "BYTES", ("batch",))]
NUMBERS = [TensorInfo("x", "FP32", ("batch", "n")), TensorInfo("e", "INT64", ("edges", 1))]
BINARY = {"parameters": {"binary_data_size": 4}}


@rows("way", [{"data": [0]}, BINARY])
@rows(
    ("inputs", "name", "shape", "words"),
    [
        (TEXTS, "s", [11, 1], "11 samples in one request"),
        (TEXTS, "s", [5, 11], "55 strings"),
        (TEXTS, "t", [11], "11 samples in one request"),
        (NUMBERS, "x", [11, 1], "11 samples in one request"),
        (NUMBERS[:1], "x", [11, 1], "11 samples in one request"),
    ],
)
def test_rows_and_strings_are_counted_by_the_shape(
    inputs: list[TensorInfo], name: str, shape: list[int], words: str, way: dict[str, Any]
) -> None:
    """The elements would not fit the shape: who looked at them first would say so."""
    codec = Codec("m", "1", Signature(inputs, [], 10, 101), 1000, Regions(1, 1))
    kind = next(info.dtype for info in inputs if info.name == name)
    text = json.dumps({"inputs": [{"name": name, "shape": shape, "datatype": kind, **way}]}).encode()
    with pytest.raises(ServeError, match=words) as caught:
        codec.decode(*((text + bytes(4), len(text)) if way is BINARY else (text,)))
    assert caught.value.status == 413


def test_as_many_as_there_may_be() -> None:
    signature = Signature([*TEXTS, *NUMBERS], [], 10, 101)
    entries = [
        {"name": "s", "shape": [10, 5], "datatype": "BYTES", "data": ["a"] * 50},
        {"name": "t", "shape": [10], "datatype": "BYTES", "data": ["b"] * 10},
        {"name": "x", "shape": [10, 1], "datatype": "FP32", "data": [1] * 10},
        {"name": "e", "shape": [30, 1], "datatype": "INT64", "data": [1] * 30},  # no rows
    ]
    codec = Codec("m", "1", signature, 1000, Regions(1, 1))
    assert codec.decode(json.dumps({"inputs": entries}).encode()).rows == 10


def test_strings_that_cannot_be_there_are_not_looked_for() -> None:
    with pytest.raises(ValueError, match="99 bytes; 25 strings have 100 at least"):
        from_bytes(bytes(99), "BYTES", (25,))
