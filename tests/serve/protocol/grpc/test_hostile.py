"""Bytes that nobody meant: whatever comes, a call is answered with an error of the client's, or it is a request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ox.serve import Server
from ox.serve.protocol.grpc.methods import MethodTable
from ox.serve.protocol.grpc.proto import message
from ox.serve.transport.grpc.rpc import StatusCode

REFUSALS = {StatusCode.INVALID_ARGUMENT, StatusCode.NOT_FOUND, StatusCode.RESOURCE_EXHAUSTED, StatusCode.UNIMPLEMENTED}
Request, InStream = message("inference.ModelInferRequest"), message("inference.ModelStreamInferResponse")
PATH = "/inference.GRPCInferenceService/"
# Those that only ask: the others would change the server.
ASKING = [
    "ServerLive", "ServerReady", "ServerMetadata", "ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics",
    "RepositoryIndex", "SystemSharedMemoryStatus", "CudaSharedMemoryStatus",
]  # fmt: skip


class Call:
    """A call that nobody carries."""

    metadata: dict[bytes, bytes] = {}  # noqa: RUF012
    received_at, deadline, peer = 0.0, None, "127.0.0.1"
    on_cancel = on_half_close = state = code = None
    finished = False

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, message: bytes) -> None:
        self.sent.append(message)

    def finish(self) -> None:
        self.finished = True

    def fail(self, code: int, text: str) -> None:
        assert text
        self.code = code

    def pause(self) -> None: ...

    def resume(self) -> None: ...


@pytest.fixture(scope="module")
def table(mlp: Any, mixed: Any) -> Iterator[tuple[MethodTable, list[Any]]]:
    """Methods whose requests end in a list instead of a run."""
    jobs: list[Any] = []
    with Server([mlp, mixed], grpc="off") as server:
        for model in server.models:
            model.submit = jobs.append  # type: ignore[method-assign]
        yield MethodTable(server.service, server.limits), jobs


def valid(model: str) -> bytes:
    if model == "mlp":
        inputs = [{"name": "x", "datatype": "FP32", "shape": [2, 64], "parameters": {"a": {"int64_param": 1}}}]
        raw = [bytes(512)]
    else:
        inputs = [
            {"name": "text", "datatype": "BYTES", "shape": [1, 1], "contents": {"bytes_contents": [b"x"]}},
            {"name": "flags", "datatype": "BOOL", "shape": [1, 3]},
            {"name": "image", "datatype": "FP32", "shape": [1, 1, 2, 2]},
        ]
        raw = [bytes(3), bytes(16)]
    outputs = [{"name": "y" if model == "mlp" else "text_out", "parameters": {"classification": {"int64_param": 0}}}]
    parameters = {"priority": {"uint64_param": 1}, "sequence_id": {"string_param": "s"}}
    made = Request(
        model_name=model, id="7", inputs=inputs, outputs=outputs, parameters=parameters, raw_input_contents=raw
    )
    return bytes(made.SerializeToString())


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A request with some of its bytes changed, cut out or put in."""
    body = bytearray(valid(draw(st.sampled_from(["mlp", "mixed"]))))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, min(len(body), 120)))
        match draw(st.integers(0, 2)):
            case 0:
                body[at : at + 1] = bytes([draw(st.integers(0, 255))])
            case 1:
                del body[at : at + draw(st.integers(1, 5))]
            case _:
                body[at:at] = draw(st.binary(max_size=5))
    return bytes(body)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=damaged() | st.binary(max_size=100))
def test_requests(table: tuple[MethodTable, list[Any]], body: bytes) -> None:
    methods, jobs = table
    for _ in range(2):  # what is remembered makes no difference
        jobs.clear()
        call = Call()
        methods.methods[f"{PATH}ModelInfer".encode()].call(body, call)  # type: ignore[arg-type]
        assert (call.code in REFUSALS) == (not jobs), call.code
    call = Call()
    methods.methods[f"{PATH}ModelStreamInfer".encode()].call(body, call)  # type: ignore[arg-type]
    if jobs[1:]:
        assert not call.sent
    else:
        (answer,) = map(InStream.FromString, call.sent)
        assert answer.error_message


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(ASKING), body=st.binary(max_size=60))
def test_other_calls(table: tuple[MethodTable, list[Any]], name: str, body: bytes) -> None:
    call = Call()
    table[0].methods[f"{PATH}{name}".encode()].call(body, call)  # type: ignore[arg-type]
    assert call.code in REFUSALS if call.code is not None else call.finished and len(call.sent) == 1


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(["/grpc.health.v1.Health/Check", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"]),
    body=st.binary(max_size=60),
)
def test_health_and_reflection(table: tuple[MethodTable, list[Any]], path: str, body: bytes) -> None:
    call = Call()
    table[0].methods[path.encode()].call(body, call)  # type: ignore[arg-type]
    assert call.code in REFUSALS or len(call.sent) == 1
