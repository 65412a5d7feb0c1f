"""What is remembered of requests may save work, never change what is understood."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rows import rows

from ox.errors import ServeError
from ox.graph.contract import TensorInfo
from ox.serve.protocol.rest import request_templates
from ox.serve.protocol.rest.codec import Codec
from ox.serve.protocol.rest.request_templates import BinaryTemplates, JsonTemplates, split_id
from ox.serve.protocol.v2.request import Request
from ox.serve.protocol.v2.shared_memory import Regions
from ox.serve.protocol.v2.signature import Signature

ONE = Signature([TensorInfo("x", "FP32", ("batch", 2))], [TensorInfo("y", "FP32", ("batch", 2))], 100, 0)
TWO = Signature(
    [TensorInfo("a", "INT64", ("batch", "n")), TensorInfo("b", "FP32", ("batch",))],
    [TensorInfo("y", "FP32", ("batch", 2)), TensorInfo("z", "BYTES", ("batch",))],
    100,
    0,
)
QUICK = settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))


def codec(signature: Signature = ONE) -> Codec:
    return Codec("m", "1", signature, 1 << 20, Regions(1, 1))


def seen(request: Request) -> Any:
    """All that a request says, in a form that can be compared."""
    feed = {name: (array.dtype, array.shape, array.tobytes()) for name, array in request.feed.items()}
    return request.id, feed, request.rows, request.key, list(request.outputs), dict(request.parameters)


def outcome(reader: Codec, body: bytes, length: int | None = None) -> Any:
    try:
        return seen(reader.decode(body, length))
    except ServeError as error:
        return error.status, error.one_line()


def document(data: Any = (1.5, 2), shape: Any = (1, 2), **more: Any) -> dict[str, Any]:
    return {**more, "inputs": [{"name": "x", "shape": list(shape), "datatype": "FP32", "data": data}]}


def known(body: bytes, length: int | None = None) -> Codec:
    """A codec that remembers this request."""
    reader = codec()
    for _ in range(3):
        reader.decode(body, length)
    plan = reader._json_templates.read(body) if length is None else reader._binary_templates.read(body, length)
    assert plan is not None
    return reader


def test_json_is_remembered() -> None:
    reader = known(json.dumps(document(id="a")).encode())
    for data in ([3, -4.5], [1e30, 0]):
        body = json.dumps(document(data, id="other")).encode()
        fast = reader._json_templates.read(body)
        assert fast is not None and seen(fast) == outcome(codec(), body)
        assert fast.id == "other"
    assert reader._json_templates.read(json.dumps(document()).encode()) is None  # without an id it is another frame


def binary(**more: Any) -> tuple[bytes, int]:
    entry = {"name": "x", "shape": [1, 2], "datatype": "FP32", "parameters": {"binary_data_size": 8}}
    text = json.dumps({**more, "inputs": [entry]}).encode()
    return text + np.array([1.5, 2], np.float32).tobytes(), len(text)


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_binary_is_remembered(kind: Any) -> None:
    body, length = binary(id="a")
    reader = known(kind(body), length)
    for identifier in ("b", "longer", "ü"):
        body, length = binary(id=identifier)
        fast = reader._binary_templates.read(kind(body), length)
        if identifier.isascii():
            assert fast is not None and fast.id == identifier
        assert outcome(reader, kind(body), length) == outcome(codec(), body, length)
        assert all(array.flags.aligned for array in reader.decode(kind(body), length).feed.values())
    for wrong in (body[:-1], body + b"1", body[:length]):
        assert reader._binary_templates.read(kind(wrong), length) is None
        assert outcome(reader, kind(wrong), length) == outcome(codec(), wrong, length)


WARM = [
    document(), document(id="a"), document([1, 2, 3, 4], (2, 2)), document([[1, 2]]),
    {"inputs": document()["inputs"], "id": "late"},
    {"inputs": document()["inputs"], "outputs": [{"name": "y", "parameters": {"classification": 1}}]},
    {"inputs": document()["inputs"], "parameters": {"priority": 1}},
    {"id": 'a"b', "inputs": document()["inputs"]},
    {"id": "x", "inputs": [{"data": [1, 2], "name": "x", "shape": [1, 2], "datatype": "FP32"}]},
]  # fmt: skip
BODIES = [json.dumps(each, separators=how).encode() for each in WARM for how in (None, (",", ":"))]
TRAPS = [
    b'{"id":"b","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}],"id":"b"}',
    b'{"id":"a","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}],"id":"b"}',
    b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2],"data":[3,4]}]}',
    b'{"data":[1,2],"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[3,4]}]}',
    b'{"\\"data":[1,2],"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[3,4]}]}',
    b'{"id":"data","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[3,4]}]}',
    b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[true,2]}]}',
    b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[null,2]}]}',
    b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":["1",2]}]}',
    b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":["]",2]}]}',
    b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1]}]}',
    b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1e400,2]}]}',
    b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1e39,2]}]}',
    b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[NaN,2]}]}',
    b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[[1,2]]}]}',
    b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[]}]}',
    b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}],"x":"\xff"}',
    b'{"id":"\xff","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}',
    b'{"id":"\x01","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}',
    b'{"id":"\\u0041","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}',
    b'{"id":"\\","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}',
    b'{"id":5,"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}',
    b'{"id":"a',
    b'{"id":"',
    b"",
]


@pytest.fixture(scope="module")
def warm() -> Codec:
    """A codec that has seen a lot, and the traps among it."""
    reader = codec()
    for _ in range(3):
        for body in BODIES + TRAPS:
            outcome(reader, body)
    return reader


@rows("body", BODIES + TRAPS)
def test_the_same_with_and_without(warm: Codec, body: bytes) -> None:
    assert outcome(warm, body) == outcome(codec(), body)


@QUICK
@example(0, 0, b"")
@given(
    st.sampled_from(BODIES + TRAPS),
    st.integers(0, 120),
    st.sampled_from([b"", b"1", b"]", b"[", b'"', b"\\", b"t", b"\xc3"]),
)
def test_near_what_is_known(warm: Codec, body: Any, at: int, patch: bytes) -> None:
    if isinstance(body, bytes):
        body = body[:at] + patch + body[at + 1 :]
        assert outcome(warm, body) == outcome(codec(), body)


@QUICK
@given(st.integers(0, 120), st.binary(max_size=2), st.integers(-3, 3))
def test_near_what_is_known_as_binary(at: int, patch: bytes, shift: int) -> None:
    body, length = binary(id="a")
    reader = known(body, length)
    changed, split = body[:at] + patch + body[at + 1 :], length + shift
    assert outcome(reader, changed, split) == outcome(codec(), changed, split)


def test_an_id_that_comes_twice() -> None:
    body, length = binary()
    reader = codec()
    for first in ("b", "b", "b", "a"):
        both = b'{"id":"%s","id":"b",' % first.encode() + body[1:]
        assert outcome(reader, both, length + len(both) - len(body)) == outcome(
            codec(), both, length + len(both) - len(body)
        )
        assert outcome(reader, both, length + len(both) - len(body))[0] == "b"


def test_two_inputs() -> None:
    reader = codec(TWO)
    for n in (1, 2, 1, 2, 3, 3, 3):
        numbers, rows = np.arange(n * 2).reshape(2, n), np.array([0.5, 1], np.float32)
        entries = [
            {
                "name": name,
                "shape": list(array.shape),
                "datatype": kind,
                "parameters": {"binary_data_size": array.nbytes},
            }
            for name, array, kind in (("b", rows, "FP32"), ("a", numbers, "INT64"))
        ]
        text = json.dumps({"inputs": entries}).encode()
        body = text + rows.tobytes() + numbers.tobytes()
        assert outcome(reader, body, len(text)) == outcome(codec(TWO), body, len(text))
    assert reader._binary_templates.read(body, len(text)) is not None


@pytest.mark.parametrize("kind", [JsonTemplates, BinaryTemplates])
def test_how_much_is_remembered(monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    monkeypatch.setattr(request_templates, "MAX_TEMPLATES", 4)
    reader = kind()
    for number in range(1000):
        frame = b"%d" % number
        reader.seen_before(frame)
        if reader.seen_before(frame):
            reader.add(frame, number)
        assert len(reader._templates) <= 4 and len(reader._seen) <= 64
    assert not reader.seen_before(b"x" * 5000) and not reader.seen_before(b"x" * 5000)


def test_regions_are_looked_up_anew() -> None:
    """A region may be another one the next time, so requests that name one are not remembered."""
    regions = Regions(1, 1)
    reader = Codec("m", "1", ONE, 1 << 20, regions)
    place = {"shared_memory_region": "r", "shared_memory_byte_size": 8}
    body = json.dumps(document() | {"outputs": [{"name": "y", "parameters": place}]}).encode()
    regions._regions["r"] = type("Region", (), {"byte_size": 8, "name": "r"})()
    for _ in range(3):
        reader.decode(body)
    regions.unregister("r")
    assert outcome(reader, body)[0] == 404


@rows(
    ("text", "identifier"),
    [(b'{"id":"a"}', "a"), (b'{"id": "a b"}', "a b"), (b'{"id":""}', ""), ('{"id":"ü"}'.encode(), "ü"),
     (b'{"id":  "a"}', None), (b'{ "id":"a"}', None), (b'{"id":"a\\n"}', None), (b'{"id":"\x7f"}', None),
     (b'{"id":"\xff"}', None), (b'{"id":5,"x":"y"}', None), (b'{"id":"' + b"x" * 200 + b'"}', None),
     (b'{"id":"', None)],
)  # fmt: skip
def test_ids(text: bytes, identifier: str | None) -> None:
    found, end = split_id(text)
    assert found == identifier
    assert (text[end : end + 1] == b'"') if identifier is not None else end == 0
