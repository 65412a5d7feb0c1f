"""A server that speaks gRPC both ways in turn, and a client that sends whatever it is told to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from ox.graph.contract import Contract, TensorInfo
from ox.serve import ModelConfig, RequestLimits, Server
from ox.serve.batching.job import Job
from ox.serve.protocol.grpc.proto import message

grpc = pytest.importorskip("grpc", reason="grpcio is not installed")

PACKAGE = "inference"
SERVICE = f"/{PACKAGE}.GRPCInferenceService/"
LIMITS = RequestLimits(body=400_000, json=60_000, reply=200_000, header_bytes=4096, drain_s=1.0)
NUMBERS = {
    "BOOL": TensorProto.BOOL, "UINT8": TensorProto.UINT8, "UINT16": TensorProto.UINT16, "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64, "INT8": TensorProto.INT8, "INT16": TensorProto.INT16, "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64, "FP16": TensorProto.FLOAT16, "FP32": TensorProto.FLOAT, "FP64": TensorProto.DOUBLE,
    "BF16": TensorProto.BFLOAT16, "BYTES": TensorProto.STRING,
}  # fmt: skip


@pytest.fixture(scope="session")
def echo(build: Callable[..., Path]) -> Path:
    """One input and output of each datatype: `fp32` to `fp32_out`, ..., with labels on `fp32_out`."""
    return write(build, "echo", [name for name in NUMBERS if name != "BF16"])


@pytest.fixture(scope="session")
def brain(build: Callable[..., Path]) -> Path:
    """The same for BF16 alone."""
    return write(build, "brain", ["BF16"])


def write(build: Callable[..., Path], model: str, names: list[str]) -> Path:
    shape = {name: (NUMBERS[name], ["batch", 2]) for name in names}
    infos = [TensorInfo(name.lower(), name, ("batch", 2)) for name in names]
    outs = [
        TensorInfo(f"{name.lower()}_out", name, ("batch", 2), labels=("cat", "dog") if name == "FP32" else None)
        for name in names
    ]
    return build(
        model,
        [("Identity", [name.lower()], [f"{name.lower()}_out"], {}) for name in names],
        {name.lower(): end for name, end in shape.items()},
        {f"{name.lower()}_out": end for name, end in shape.items()},
        contract=Contract(tuple(infos), tuple(outs)),
    )


@pytest.fixture(scope="session", params=["own", "grpcio"])
def grpc_server(request: pytest.FixtureRequest, mlp: Path, mixed: Path, echo: Path, brain: Path) -> Iterator[Server]:
    """All models, over each transport in turn; whoever likes may manage."""
    options = ModelConfig(device="cpu", instances=2)
    with Server(
        [mlp, mixed, echo, brain], options=options, limits=LIMITS, grpc=request.param, grpc_port=0, manage=True
    ) as it:
        yield it


class Wire:
    """Calls with messages or with bytes that are none."""

    def __init__(self, target: str) -> None:
        self.channel = grpc.insecure_channel(target, options=[("grpc.max_receive_message_length", -1)])

    def method(self, path: str) -> Any:
        return self.channel.unary_unary(path if path.startswith("/") else SERVICE + path)

    def stream(self, path: str = "ModelStreamInfer") -> Any:
        return self.channel.stream_stream(path if path.startswith("/") else SERVICE + path)

    def call(self, name: str, body: bytes | None = None, /, *, metadata: Any = None, **fields: Any) -> Any:
        """The answer to a request made of `fields`, or of `body` as it is."""
        if body is None:
            body = message(f"{PACKAGE}.{name}Request")(**fields).SerializeToString()
        reply = self.method(name)(body, timeout=300, metadata=metadata)
        return message(f"{PACKAGE}.{name}Response").FromString(reply)

    def refused(self, name: str, body: bytes | None = None, /, **fields: Any) -> tuple[Any, str]:
        """The code and the text with which a call fails."""
        with pytest.raises(grpc.RpcError) as caught:
            self.call(name, body, **fields)
        return caught.value.code(), caught.value.details()


@pytest.fixture
def wire(grpc_server: Server) -> Iterator[Wire]:
    made = Wire(f"127.0.0.1:{grpc_server.grpc_port}")
    yield made
    made.channel.close()


@pytest.fixture(scope="session")
def dial() -> type[Wire]:
    return Wire


class Held:
    """Keeps the jobs of a model instead of running them, until it is told to."""

    def __init__(self, server: Server, name: str, patch: pytest.MonkeyPatch) -> None:
        self._model = next(model for model in server.models if model.name == name)
        self._submit, self._loop = self._model.submit, server._loop
        self.jobs: list[Any] = []
        self._changed = threading.Condition()
        patch.setattr(self._model, "submit", self._keep)
        abandon = Job.abandon_result

        def told(job: Job) -> None:
            abandon(job)
            with self._changed:
                self._changed.notify_all()

        patch.setattr(Job, "abandon_result", told)

    def _keep(self, job: Any) -> None:
        with self._changed:
            self.jobs.append(job)
            self._changed.notify_all()

    def wait(self, count: int) -> None:
        """Until so many have come."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.jobs) >= count, 120)

    def abandoned(self, count: int) -> bool:
        """Whether so many of them are abandoned before long."""
        with self._changed:
            return self._changed.wait_for(lambda: sum(job.abandoned for job in self.jobs) == count, 120)

    def release(self) -> None:
        """Has them run, and all that come."""
        self._model.submit = self._submit
        for job in self.jobs:
            self._loop.call_soon_threadsafe(self._submit, job)


@pytest.fixture
def held(grpc_server: Server, monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(grpc_server, "mlp", monkeypatch)


def ask(model: str = "mlp", rows: int = 1, **more: Any) -> Any:
    """A ModelInferRequest with ones for the model mlp."""
    x = np.ones((rows, 64), np.float32)
    fields: dict[str, Any] = {
        "model_name": model,
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [rows, 64]}],
        "raw_input_contents": [x.tobytes()],
        **more,
    }
    return message("inference.ModelInferRequest")(**fields)


@pytest.fixture(scope="session")
def ones() -> Callable[..., Any]:
    return ask


@pytest.fixture(scope="session")
def expected(mlp: Path) -> Callable[[int], Any]:
    """What mlp answers to rows of ones."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(mlp), providers=["CPUExecutionProvider"])
    return lambda rows=1: session.run(None, {"x": np.ones((rows, 64), np.float32)})[0]
