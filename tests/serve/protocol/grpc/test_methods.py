"""The table of calls over both transports: answers, errors, and what is no call at all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from onnx import TensorProto
from rows import rows

from ox import __version__
from ox.clock import SYSTEM
from ox.serve import Server
from ox.serve.access import Guard
from ox.serve.protocol.grpc.methods import MethodTable
from ox.serve.protocol.grpc.proto import FILES, message

Code = grpc.StatusCode
BAD = Code.INVALID_ARGUMENT


def test_every_method_of_the_services_is_there(grpc_server: Server) -> None:
    table = MethodTable(grpc_server.service, grpc_server.limits)
    declared = {
        f"/{file.package}.{service.name}/{method.name}".encode(): method.client_streaming or method.server_streaming
        for file in FILES
        for service in file.service
        for method in service.method
    }
    assert {path: method.streaming for path, method in table.methods.items()} == declared
    assert len([path for path in declared if path.startswith(b"/inference.")]) == 20


def test_metadata(wire: Any) -> None:
    assert wire.call("ServerLive").live and wire.call("ServerReady").ready
    assert wire.call("ModelReady", name="mlp").ready and not wire.call("ModelReady", name="mlp", version="x").ready
    server = wire.call("ServerMetadata")
    assert (server.name, server.version) == ("ox", __version__)
    model = wire.call("ModelMetadata", name="echo", version="1")
    assert [output.name for output in model.outputs][-1] == "bytes_out"
    assert wire.refused("ModelMetadata", name="mlp", version="x")[0] == Code.NOT_FOUND


def test_index(wire: Any) -> None:
    everything, ready = wire.call("RepositoryIndex"), wire.call("RepositoryIndex", ready=True)
    assert {model.name for model in ready.models} <= {model.name for model in everything.models}
    assert {"mlp", "mixed", "echo"} <= {model.name for model in ready.models}
    assert {model.state for model in ready.models} == {"READY"}


@rows(
    ("name", "fields", "code", "text"),
    [
        ("ModelConfig", {"name": "nope"}, Code.NOT_FOUND, "there is no model 'nope'"),
        ("ModelStatistics", {"name": "nope"}, Code.NOT_FOUND, "there is no model 'nope'"),
        ("RepositoryModelLoad", {"model_name": "nope"}, Code.NOT_FOUND, "'nope'"),
        ("RepositoryModelLoad", {"model_name": ".."}, BAD, "cannot be the name"),
        ("RepositoryModelLoad", {"model_name": " "}, BAD, "cannot be the name"),
        (
            "RepositoryModelLoad",
            {"model_name": " x", "parameters": {"file:1/model.onnx": {"bytes_param": b"x"}}},
            BAD,
            "cannot be the name",
        ),
        ("RepositoryModelUnload", {"model_name": "nope"}, Code.NOT_FOUND, "'nope'"),
        ("RepositoryModelLoad", {"model_name": "mlp", "parameters": {"x": {"bool_param": True}}}, BAD, "parameter 'x'"),
        (
            "RepositoryModelLoad",
            {"model_name": "mlp", "parameters": {"config": {"string_param": "{"}}},
            BAD,
            "config",
        ),
        (
            "RepositoryModelLoad",
            {
                "model_name": "m",
                "parameters": {"file:../../x": {"bytes_param": b"x"}, "config": {"string_param": "{}"}},
            },
            BAD,
            "names no file of a version",
        ),
        (
            "RepositoryModelUnload",
            {"model_name": "mlp", "parameters": {"unload_dependents": {"string_param": "yes"}}},
            BAD,
            "unload_dependents is not true or false",
        ),
        ("SystemSharedMemoryStatus", {"name": "r"}, Code.NOT_FOUND, "there is no shared memory region 'r'"),
        (
            "SystemSharedMemoryRegister",
            {"name": "r", "key": "/../etc/passwd", "byte_size": 8},
            BAD,
            "invalid key of shared memory",
        ),
        ("SystemSharedMemoryRegister", {"name": "r", "key": "/ox_no_such"}, BAD, "'byte_size' is wrong"),
        ("CudaSharedMemoryStatus", {"name": "r"}, Code.NOT_FOUND, "no CUDA shared memory region 'r'"),
        ("CudaSharedMemoryRegister", {"name": "r"}, Code.UNIMPLEMENTED, "no CUDA shared memory"),
    ],
)
def test_what_is_refused(wire: Any, name: str, fields: dict[str, Any], code: Any, text: str) -> None:
    got, said = wire.refused(name, **fields)
    assert got == code and text in said


@pytest.mark.parametrize("name", ["ModelMetadata", "RepositoryModelLoad", "ModelConfig"])
def test_what_is_no_message(wire: Any, name: str) -> None:
    code, said = wire.refused(name, b"\x0a\x05abc")
    assert code == BAD and said.startswith(f"the message is not a valid {name}Request")


def test_a_large_message_where_only_a_name_belongs(wire: Any) -> None:
    code, said = wire.refused("ModelMetadata", name="x" * 70_000)
    assert code == Code.RESOURCE_EXHAUSTED and "too large" in said


@pytest.mark.parametrize("path", ["/inference.GRPCInferenceService/Nothing", "/no.Such/Call", "/x"])
def test_unknown_methods(wire: Any, path: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        wire.method(path)(b"", timeout=300)
    assert caught.value.code() == Code.UNIMPLEMENTED


def test_a_defect_of_ours_is_not_shown(
    grpc_server: Server, wire: Any, ones: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("inner secrets")

    monkeypatch.setattr(grpc_server.service, "model_metadata", fail)
    monkeypatch.setattr(grpc_server.service, "load", _fail_later)
    model = next(model for model in grpc_server.models if model.name == "mlp")
    monkeypatch.setattr(model, "submit", fail)
    for refused in (
        wire.refused("ModelMetadata", name="mlp"),
        wire.refused("RepositoryModelLoad", model_name="mlp"),
        wire.refused("ModelInfer", ones().SerializeToString()),
    ):
        assert refused == (Code.INTERNAL, "the server failed on this request; try its log")
    (answer,) = wire.stream()(iter([ones().SerializeToString()]), timeout=300)
    said = message("inference.ModelStreamInferResponse").FromString(answer).error_message
    assert said == "the server failed on this request; try its log"
    assert caplog.text.count("ZeroDivisionError: inner secrets") == 4


async def _fail_later(*_: object) -> None:
    raise ZeroDivisionError("inner secrets")


KEYS = """
[keys.reader]
hash = "{0}"
models = ["mlp"]
actions = ["read"]

[keys.user]
hash = "{1}"
models = ["mlp"]
actions = ["infer"]

[keys.boss]
hash = "{2}"
actions = ["infer", "read", "manage"]
"""
CALLS: list[tuple[str, dict[str, Any], str]] = [
    ("ModelMetadata", {"name": "mlp"}, "reader boss"),
    ("ModelConfig", {"name": "mlp"}, "reader boss"),
    ("ModelMetadata", {"name": "mixed"}, "boss"),
    ("ServerMetadata", {}, "reader boss"),
    ("ModelReady", {"name": "mlp"}, "reader boss"),
    ("RepositoryIndex", {}, "boss"),
    ("ModelStatistics", {}, "boss"),
    ("ModelStatistics", {"name": "mlp"}, "reader boss"),
    ("RepositoryModelLoad", {"model_name": "mlp"}, "boss"),
    ("SystemSharedMemoryStatus", {}, "boss"),
    ("SystemSharedMemoryUnregister", {"name": "r"}, "boss"),
    ("CudaSharedMemoryUnregister", {}, "boss"),
]


@pytest.fixture(scope="module", params=["own", "grpcio"])
def guarded(request: pytest.FixtureRequest, mlp: Path, mixed: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    import hashlib

    hashes = ["sha256:" + hashlib.sha256(name.encode()).hexdigest() for name in ("reader", "user", "boss")]
    keys = tmp_path_factory.mktemp("keys") / "keys.toml"
    keys.write_text(KEYS.format(*hashes))
    keys.chmod(0o600)
    with Server([mlp, mixed], grpc=request.param, grpc_port=0, keys=keys) as server:
        yield server


def test_keys(guarded: Server, dial: Callable[[str], Any], ones: Any) -> None:
    wire = dial(f"127.0.0.1:{guarded.grpc_port}")
    assert wire.call("ServerLive").live and wire.call("ServerReady").ready

    def outcome(name: str, key: str | None, fields: dict[str, Any]) -> Any:
        metadata = None if key is None else [("authorization", f"Bearer {key}")]
        try:
            wire.call(name, fields.get("body"), metadata=metadata, **({} if "body" in fields else fields))
        except grpc.RpcError as error:
            return error.code()
        return Code.OK

    body = ones().SerializeToString()
    for name, fields, allowed in [*CALLS, ("ModelInfer", {"body": body}, "user boss")]:
        assert outcome(name, None, fields) == outcome(name, "stranger", fields) == Code.UNAUTHENTICATED, name
        for key in ("reader", "user", "boss"):
            expected = Code.OK if key in allowed.split() else Code.PERMISSION_DENIED
            assert outcome(name, key, fields) == expected, (name, key)
    # Whoever may not use a model does not learn whether there is one.
    for model in ("mixed", "nope"):
        assert outcome("ModelInfer", "user", {"body": ones(model=model).SerializeToString()}) == Code.PERMISSION_DENIED
    # A probe of the server needs no key, one of a model does.
    for metadata, code in ((None, Code.UNAUTHENTICATED), ([("x-api-key", "reader")], None)):
        check = wire.method("/grpc.health.v1.Health/Check")
        assert check(b"", timeout=300, metadata=metadata)
        asked = message("grpc.health.v1.HealthCheckRequest")(service="mlp").SerializeToString()
        if code is None:
            assert check(asked, timeout=300, metadata=metadata)
        else:
            with pytest.raises(grpc.RpcError) as caught:
                check(asked, timeout=300, metadata=metadata)
            assert caught.value.code() == code
    # A head that is remembered is remembered for nobody in particular.
    assert outcome("ModelInfer", "boss", {"body": body}) == Code.OK
    assert outcome("ModelInfer", "reader", {"body": body}) == Code.PERMISSION_DENIED
    wire.channel.close()


def test_management_is_off_unless_it_is_on(mlp: Path, dial: Callable[[str], Any]) -> None:
    with Server([mlp], grpc_port=0) as server:
        wire = dial(f"127.0.0.1:{server.grpc_port}")
        code, said = wire.refused("RepositoryModelUnload", model_name="mlp")
        assert code == Code.PERMISSION_DENIED and said.startswith("management calls are disabled")
        wire.channel.close()


def test_an_answer_that_nobody_waits_for(grpc_server: Server, wire: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that gives up while the server still works: the work goes on and its answer is thrown away."""
    import asyncio

    begun, end = threading.Event(), threading.Event()

    async def load(*_: object) -> dict[str, Any]:
        begun.set()
        await asyncio.to_thread(end.wait, 120)
        return {}

    monkeypatch.setattr(grpc_server.service, "load", load)
    call = wire.method("RepositoryModelLoad").future(b"", timeout=300)
    assert begun.wait(120)
    call.cancel()
    end.set()
    assert wire.call("ServerLive").live


def test_a_rate(mlp: Path, dial: Callable[[str], Any], ones: Any) -> None:
    with Server([mlp], grpc_port=0, rate=1.0) as server:
        wire = dial(f"127.0.0.1:{server.grpc_port}")
        body = ones().SerializeToString()
        codes = []
        for _ in range(4):
            try:
                wire.call("ModelInfer", body)
                codes.append(Code.OK)
            except grpc.RpcError as error:
                codes.append(error.code())
        assert codes[0] == Code.OK and Code.RESOURCE_EXHAUSTED in codes
        wire.channel.close()


def test_a_guard_that_is_open_costs_nothing() -> None:
    assert Guard(clock=SYSTEM).open


def test_what_is_remembered_of_requests_ends_with_a_reload(wire: Any, build: Callable[..., Path]) -> None:
    """The same bytes, before and after another file was loaded under the name, and once it is gone."""
    shape = {"x": (TensorProto.FLOAT, ["batch", 2])}
    out = {"y": (TensorProto.FLOAT, ["batch", 2])}
    body = message("inference.ModelInferRequest")(
        model_name="swap",
        inputs=[{"name": "x", "datatype": "FP32", "shape": [1, 2]}],
        raw_input_contents=[np.ones(2, np.float32).tobytes()],
    ).SerializeToString()
    for factor in (2.0, 3.0):
        weights = {"w": np.float32([factor])}
        file = build("swap", [("Mul", ["x", "w"], ["y"], {})], shape, out, weights)
        parameters = {"config": {"string_param": "{}"}, "file:1/model.onnx": {"bytes_param": file.read_bytes()}}
        wire.call("RepositoryModelLoad", model_name="swap", parameters=parameters)
        for _ in range(3):
            answer = wire.call("ModelInfer", body)
            assert np.frombuffer(answer.raw_output_contents[0], np.float32).tolist() == [factor, factor]
    wire.call("RepositoryModelUnload", model_name="swap")
    code, said = wire.refused("ModelInfer", body)
    assert code in (BAD, Code.NOT_FOUND) and "'swap'" in said
