"""Small ONNX files, a running server, and a client that speaks bytes."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from cuda_session import CudaSession
from onnx import TensorProto, helper, numpy_helper
from serving_gpu import ServingGpu

from ox.graph.contract import Contract
from ox.serve import ModelConfig, RequestLimits, Server
from ox.serve.tuning import measure

Build = Callable[..., Path]


@pytest.fixture(scope="module", autouse=True)
def unmeasured() -> Iterator[None]:
    """Loads that measure nothing: batches of 8, a thread a run, an instance's own buffers where they work, unless
    the options say otherwise. What a load measures depends on how busy the machine is.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "best_rows", lambda *_: None)
        patch.setattr(measure, "_all_cores", lambda *_: None)
        patch.setattr(measure, "_binding_is_faster", lambda *_: True)
        yield


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Writes a model: nodes as (operator, inputs, outputs, attributes), inputs and outputs as {name: (type, dims)}."""

    def write(
        name: str,
        nodes: list[tuple[str, list[str], list[str], dict[str, Any]]],
        inputs: dict[str, tuple[int, list[Any]]],
        outputs: dict[str, tuple[int, list[Any]]],
        weights: dict[str, np.ndarray[Any, Any]] | None = None,
        opset: int = 21,
        ir_version: int = 10,
        contract: Contract | None = None,
        folder: Path | None = None,
    ) -> Path:
        made = [helper.make_node(op, i, o, **attributes) for op, i, o, attributes in nodes]
        ends = [
            [helper.make_tensor_value_info(key, kind, dims) for key, (kind, dims) in group.items()]
            for group in (inputs, outputs)
        ]
        constants = [numpy_helper.from_array(array, key) for key, array in (weights or {}).items()]
        graph = helper.make_graph(made, name, *ends, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)
        if contract is not None:
            helper.set_model_props(model, contract.to_metadata())
        path = (folder or tmp_path_factory.mktemp("models")) / f"{name}.onnx"
        onnx.save(model, path)
        return path

    return write


@pytest.fixture(scope="session")
def loop_body() -> onnx.GraphProto:
    """Of a Loop that carries floats `v` and changes nothing: it goes on as long as its condition was true."""
    value = helper.make_tensor_value_info
    return helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Identity", ["v"], ["w"])],
        "body",
        [
            value("i", TensorProto.INT64, []),
            value("c", TensorProto.BOOL, []),
            value("v", TensorProto.FLOAT, None),
        ],
        [value("d", TensorProto.BOOL, []), value("w", TensorProto.FLOAT, None)],
    )


@pytest.fixture(scope="session")
def mlp(build: Build) -> Path:
    """64-64-10: x [batch, 64] to y [batch, 10]."""
    random = np.random.default_rng(7)
    weights = {
        "w1": random.standard_normal((64, 64)).astype(np.float32),
        "w2": random.standard_normal((64, 10)).astype(np.float32),
    }
    nodes = [
        ("MatMul", ["x", "w1"], ["h"], {}),
        ("Relu", ["h"], ["r"], {}),
        ("MatMul", ["r", "w2"], ["y"], {}),
    ]
    shape = {"x": (TensorProto.FLOAT, ["batch", 64])}
    return build("mlp", nodes, shape, {"y": (TensorProto.FLOAT, ["batch", 10])}, weights)


@pytest.fixture(scope="session")
def mixed(build: Build) -> Path:
    """Several types at once: image, flags and text in; their echoes, and a bfloat16 of the image, out."""
    f, s, b = TensorProto.FLOAT, TensorProto.STRING, TensorProto.BOOL
    nodes = [
        ("Identity", ["image"], ["image_out"], {}),
        ("Identity", ["text"], ["text_out"], {}),
        ("Not", ["flags"], ["flags_out"], {}),
        ("Log", ["image"], ["log"], {}),
    ]
    inputs = {"image": (f, ["batch", 1, 2, 2]), "text": (s, ["batch", "words"]), "flags": (b, ["batch", 3])}
    outputs = {
        "image_out": (f, ["batch", 1, 2, 2]),
        "text_out": (s, ["batch", "words"]),
        "flags_out": (b, ["batch", 3]),
        "log": (f, ["batch", 1, 2, 2]),
    }
    return build("mixed", nodes, inputs, outputs)


SMALL = RequestLimits(
    body=100_000,
    json=60_000,
    reply=200_000,
    header_bytes=4096,
    header_count=30,
    url=1000,
    linger_s=1.0,
)


@pytest.fixture(scope="session")
def server(mlp: Path, mixed: Path) -> Iterator[Server]:
    """Both models behind low limits of size. Its timeouts are those of every server: no test is too slow for them."""
    with Server([mlp, mixed], options=ModelConfig("cpu", max_rows=8, instances=2, threads=1), limits=SMALL) as running:
        yield running


class Client:
    """A raw connection to a server."""

    def __init__(self, server: Server) -> None:
        self.socket = socket.create_connection((server.host, server.port), timeout=300)
        self.buffer = b""

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def reply(self) -> tuple[int, dict[str, str], bytes]:
        """The next answer: status, headers, body."""
        while b"\r\n\r\n" not in self.buffer:
            self._more()
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        start, *lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        length = int(headers.get("content-length", 0))
        while len(self.buffer) < length:
            self._more()
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        return int(start.split()[1]), headers, body

    def _more(self) -> None:
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError(f"closed with {self.buffer!r} unread")
        self.buffer += data

    def closed(self) -> bool:
        """Whether the server closes the connection without another byte."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def ask(
        self, method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        lines = {"host": "test", "content-length": str(len(body)), **(headers or {})}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self.send(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + body)
        return self.reply()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server) as connected:
        yield connected


@pytest.fixture(scope="session")
def connect() -> type[Client]:
    return Client


def tensor(name: str, array: np.ndarray[Any, Any], datatype: str = "FP32") -> dict[str, Any]:
    return {"name": name, "shape": list(array.shape), "datatype": datatype, "data": array.ravel().tolist()}


@pytest.fixture
def infer() -> Callable[..., Any]:
    """Sends arrays as JSON to one model and gives its outputs back as arrays; floats only."""

    def call(client: Client, model: str, **arrays: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        body = json.dumps({"inputs": [tensor(name, array) for name, array in arrays.items()]}).encode()
        status, _, reply = client.ask("POST", f"/v2/models/{model}/infer", body)
        assert status == 200, reply
        return {o["name"]: np.array(o["data"], np.float32).reshape(o["shape"]) for o in json.loads(reply)["outputs"]}

    return call


@pytest.fixture
def gpu() -> ServingGpu:
    """The GPU, or the stand-in."""
    return ServingGpu()


@pytest.fixture
def cuda(gpu: ServingGpu, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServingGpu]:
    """The same, with sessions that note what they are asked."""
    gpu.serve(monkeypatch)
    yield gpu
    CudaSession.made.clear()  # their memory is the next test's
