"""Bodies that nobody would send: always an answer of the protocol, never a 500, never a lost connection."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ox.serve import ModelConfig, Server

QUICK = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
numbers = st.integers(-5, 70) | st.integers(2**31, 2**64)
inputs = st.fixed_dictionaries(
    {},
    optional={
        "name": st.just("x") | json_values,
        "shape": st.just([1, 64]) | st.lists(numbers, max_size=4) | json_values,
        "datatype": st.sampled_from(["FP32", "FP64", "BYTES"]) | json_values,
        "data": st.just([0.5] * 64)
        | st.just([[0.5] * 64])
        | st.lists(st.floats(allow_nan=False), max_size=70)
        | json_values,
        "parameters": st.fixed_dictionaries({}, optional={"binary_data_size": numbers | json_values}) | json_values,
    },
)
documents = st.fixed_dictionaries(
    {},
    optional={
        "id": st.text(max_size=5) | json_values,
        "inputs": st.lists(inputs, max_size=2) | json_values,
        "outputs": st.lists(st.fixed_dictionaries({"name": st.just("y") | json_values}), max_size=3) | json_values,
        "parameters": st.fixed_dictionaries({"binary_data_output": st.booleans() | json_values}) | json_values,
    },
)


@pytest.fixture(scope="module")
def patient(mlp: Any) -> Iterator[Server]:
    """A server that waits as long as hypothesis thinks."""
    with Server([mlp], options=ModelConfig(instances=1)) as running:
        yield running


@pytest.fixture(scope="module")
def talker(patient: Server, connect: Any) -> Iterator[Any]:
    with connect(patient) as connected:
        yield connected


def check(client: Any, body: bytes, headers: dict[str, str] | None = None) -> None:
    status, answered, reply = client.ask("POST", "/v2/models/mlp/infer", body, headers)
    assert status in (200, 400, 413), (status, reply)
    if status == 200:
        length = int(answered.get("inference-header-content-length", len(reply)))
        assert json.loads(reply[:length])["model_name"] == "mlp"
    else:
        assert 0 < len(json.loads(reply)["error"]) < 2000


@QUICK
@given(documents)
def test_any_document(talker: Any, document: Any) -> None:
    check(talker, json.dumps(document).encode())


@QUICK
@given(st.binary(max_size=300))
def test_any_bytes(talker: Any, body: bytes) -> None:
    check(talker, body)


@QUICK
@given(documents, st.binary(max_size=300), st.integers(0, 400))
def test_any_split(talker: Any, document: Any, tail: bytes, shift: int) -> None:
    text = json.dumps(document).encode()
    check(talker, text + tail, {"inference-header-content-length": str(min(len(text) + shift % 3, shift + len(text)))})


@settings(QUICK, max_examples=100)
@given(st.binary(max_size=200), st.integers(0, 200), st.binary(min_size=1, max_size=3))
def test_any_request(patient: Any, connect: Any, junk: bytes, at: int, patch: bytes) -> None:
    """A valid request with bytes replaced, then junk: the server answers or closes, and serves the next client."""
    body = json.dumps({"inputs": [{"name": "x", "shape": [1, 64], "datatype": "FP32", "data": [0] * 64}]}).encode()
    head = b"POST /v2/models/mlp/infer HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
    whole = head + body
    with connect(patient) as client:
        client.send(whole[:at] + patch + whole[at + len(patch) :] + junk)
    with connect(patient) as client:
        assert client.ask("GET", "/v2/health/live")[0] == 200
