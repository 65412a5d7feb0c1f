"""A server that speaks gRPC both ways in turn, and a client that sends whatever it is told to."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest
from onnx import TensorProto

from ox.errors import ServeError
from ox.graph.contract import Contract, TensorInfo
from ox.serve import Limits, Options, Server
from ox.serve.grpc.own import Grpc
from ox.serve.grpc.proto import message
from ox.serve.grpc.rpc import Code, Method, Rpc
from ox.serve.http import Exchange, Front
from ox.serve.http2 import Http2
from ox.serve.server import new_loop

grpc = pytest.importorskip("grpc", reason="grpcio is not installed")

PACKAGE = "inference"
SERVICE = f"/{PACKAGE}.GRPCInferenceService/"
LIMITS = Limits(body=400_000, json=60_000, reply=200_000, header_bytes=4096, drain_s=1.0)
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
    options = Options(device="cpu", instances=2)
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

    def _keep(self, job: Any) -> None:
        with self._changed:
            self.jobs.append(job)
            self._changed.notify_all()

    def wait(self, count: int) -> None:
        """Until so many have come."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.jobs) >= count, 20)

    def abandoned(self, count: int) -> bool:
        """Whether so many of them are abandoned before long."""
        give_up = time.monotonic() + 120
        while sum(job.abandoned for job in self.jobs) < count and time.monotonic() < give_up:
            time.sleep(0.01)
        return sum(job.abandoned for job in self.jobs) == count

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


# What own.py is tested with.


class Echoes:
    """Echoes of several kinds on a loop in a thread of its own."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.held: list[Rpc] = []
        self.alive: WeakSet[Rpc] = WeakSet()
        self.abandoned = self.taken = 0
        calls = {
            False: [self.echo, self.hold, self.fail, self.big, self.tell],
            True: [self.each, self.many, self.paced],
        }
        methods = [(call.__name__.title(), streams, call) for streams in calls for call in calls[streams]]
        self.table = {f"/t.T/{name}".encode(): Method(f"/t.T/{name}".encode(), s, c) for name, s, c in methods}

    def echo(self, message: bytes, rpc: Rpc) -> None:
        self.alive.add(rpc)
        rpc.send(message)
        rpc.finish()

    def big(self, message: bytes, rpc: Rpc) -> None:
        rpc.send(b"b" * int(message))
        rpc.finish()

    def tell(self, message: bytes, rpc: Rpc) -> None:
        assert rpc.peer == "127.0.0.1"
        rpc.send(rpc.metadata.get(message, b"-"))
        rpc.finish()

    def hold(self, message: bytes, rpc: Rpc) -> None:
        rpc.on_abandon = self._abandoned
        self.held.append(rpc)

    def fail(self, message: bytes, rpc: Rpc) -> None:
        rpc.fail(int(message), "100% wrong: ä\n")
        rpc.fail(0, "not heard")
        rpc.send(b"not heard")
        rpc.finish()

    def each(self, message: bytes, rpc: Rpc) -> None:
        rpc.ended, rpc.on_abandon = rpc.finish, self._abandoned
        if message == b"fail":
            rpc.fail(Code.ABORTED, "enough")
        rpc.send(message)

    def many(self, message: bytes, rpc: Rpc) -> None:
        for _ in range(int(message)):
            rpc.send(bytes(10_000))
        rpc.ended = rpc.finish
        self.taken += 1

    def paced(self, message: bytes, rpc: Rpc) -> None:
        """Two at a time, each answered a moment later."""
        waiting = rpc.state = [*(rpc.state or []), message]  # type: ignore[misc]
        if len(waiting) == 1:
            rpc.ended = lambda: None if rpc.state else rpc.finish()
        assert len(waiting) <= 2
        if len(waiting) == 2:
            rpc.hold()
        self.loop.call_later(0.001, self._paced, rpc)

    def _paced(self, rpc: Rpc) -> None:
        rpc.send(rpc.state.pop(0))  # type: ignore[attr-defined]
        if rpc.ended is None and not rpc.state:
            rpc.finish()
        else:
            rpc.resume()

    def _abandoned(self) -> None:
        self.abandoned += 1

    def __enter__(self) -> Echoes:
        self.loop = new_loop()
        ready = threading.Event()
        self.thread = threading.Thread(target=self.loop.run_until_complete, args=(self._run(ready),))
        self.thread.start()
        ready.wait()
        self.target = f"127.0.0.1:{self.port}"
        return self

    async def _run(self, ready: threading.Event) -> None:
        def handle(exchange: Exchange) -> None:
            raise ServeError("no such page", status=404)

        self.front = Front(handle, self.limits)
        self.grpc = Grpc(self.table, self.limits.body)
        self.stopping = asyncio.Event()
        listener = await self.loop.create_server(Http2(self.front, self.grpc.plan), "127.0.0.1", 0)
        self.port = listener.sockets[0].getsockname()[1]
        ready.set()
        await self.stopping.wait()
        listener.close()
        await self.front.drain()

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.stopping.set)
        self.thread.join()
        self.loop.close()

    def do(self, call: Callable[[], Any]) -> Any:
        async def on_loop() -> Any:
            return call()

        return asyncio.run_coroutine_threadsafe(on_loop(), self.loop).result(120)


MESSAGE = 3_000_000


@pytest.fixture(scope="session")
def echoes() -> type[Echoes]:
    return Echoes


@pytest.fixture(scope="session")
def patient() -> Limits:
    return Limits(body=MESSAGE, buffered=4 * MESSAGE, header_bytes=4096)


@pytest.fixture(scope="session")
def shared_site(patient: Limits) -> Iterator[Echoes]:
    with Echoes(patient) as running:
        yield running


@pytest.fixture
def site(shared_site: Echoes) -> Iterator[Echoes]:
    """Echoes of several kinds over our own framing."""
    yield shared_site
    assert shared_site.do(lambda: shared_site.front.buffered) == 0
