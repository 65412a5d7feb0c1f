"""Servers to load: one that behaves, raw ones that do as they are told, and a way to load them in this process."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ox.bench.measure
from ox.bench import Plan, Result
from ox.bench.worker import work

if TYPE_CHECKING:
    from ox.serve import Server

METADATA = {
    "name": "m",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
}
RIGHT = {"outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}]}

Behave = Callable[[int, asyncio.StreamWriter], Awaitable[None]]


def reply(document: Any, status: int = 200, **headers: str) -> bytes:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    lines = {"content-length": str(len(body)), **{name.replace("_", "-"): text for name, text in headers.items()}}
    head = "".join(f"{name}: {text}\r\n" for name, text in lines.items())
    return f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + body


class Raw:
    """Answers metadata, and inferences as `behave` says: it gets the request's number, from 0, and the connection.

    The first eight inferences, with which a load begins, are answered rightly.

    Args:
        probes: how many these are.
        path: a part of that of inferences.
        first: what the first ones are answered.
    """

    def __init__(
        self,
        behave: Behave,
        metadata: Any = METADATA,
        probes: int = 8,
        path: bytes = b"/infer",
        first: bytes | None = None,
    ) -> None:
        self.behave, self.metadata, self.path, self.first = behave, metadata, path, first or reply(RIGHT)
        self.asked = -probes
        self.bodies: list[bytes] = []
        self.heads: list[bytes] = []

    def __enter__(self) -> Raw:
        started = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(started,))
        self.thread.start()
        started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(RuntimeError):  # it went away by itself
            self.loop.call_soon_threadsafe(self.over.set)
        self.thread.join()

    def _run(self, started: threading.Event) -> None:
        async def body() -> None:
            self.loop, self.over = asyncio.get_running_loop(), asyncio.Event()
            self.tasks: set[asyncio.Task[Any]] = set()
            self.writers: list[asyncio.StreamWriter] = []
            server = await asyncio.start_server(self._client, "127.0.0.1", 0)
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            started.set()
            await self.over.wait()
            server.close()
            while others := asyncio.all_tasks() - {asyncio.current_task()}:  # some may only now be on their way in
                for task in self.tasks:
                    task.cancel()
                await asyncio.wait(others)
            for writer in self.writers:  # closed ones may still have something to send
                writer.transport.abort()
                with suppress(ConnectionError):
                    await writer.wait_closed()

        asyncio.run(body())

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        self.writers.append(writer)
        task.add_done_callback(self.tasks.discard)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = [
                    int(line[16:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length: ")
                ]
                body = await reader.readexactly(length[0] if length else 0)
                if self.path not in head.split(b"\r\n")[0]:
                    document = [{"name": "m", "state": "READY"}] if b"/index" in head else self.metadata
                    writer.write(reply(document))
                    continue
                self.heads.append(head)
                self.bodies.append(body)
                number, self.asked = self.asked, self.asked + 1
                if number < 0:
                    writer.write(self.first)
                else:
                    await self.behave(number, writer)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`ox.bench.run`, its load in this process; without warm-up unless told."""

    async def at_once() -> None:
        return

    def share_out(task: dict[str, Any], clients: int, rate: float | None, parts: int, *_: Any) -> list[dict[str, Any]]:
        whole = json.loads(json.dumps({**task, "clients": clients, "rate": rate, "part": 0, "parts": 1}))
        return [asyncio.run(work(whole, at_once))]

    def load(
        url: str, *, model: str | None = None, data: Path | None = None, key: str | None = None, **plan: Any
    ) -> Result:
        monkeypatch.setattr(ox.bench.measure, "share_out", share_out)
        settings = {"seconds": 0.3, "warmup": 0.0, "concurrency": () if "rates" in plan else (4,), **plan}
        return ox.bench.measure.run(url, Plan(**settings), model=model, data=data, key=key)

    return load


@pytest.fixture(scope="session")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(7)
    weight = numpy_helper.from_array(random.standard_normal((64, 10)).astype(np.float32), "w")
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", s]) for n, s in (("x", 64), ("y", 10))]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "mlp", ends[:1], ends[1:], [weight])
    path = tmp_path_factory.mktemp("models") / "mlp.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


@pytest.fixture(scope="session")
def server(mlp: Path) -> Iterator[Server]:
    from ox.serve import ModelConfig, Server

    with Server([mlp], options=ModelConfig(device="cpu")) as running:
        yield running


@pytest.fixture(scope="session")
def decoder(shared_folder: Callable[..., Path]) -> Iterator[Server]:
    """One that generates text."""
    from tiny_decoder import write_decoder

    from ox.serve import ModelConfig, Server

    pytest.importorskip("tokenizers", reason="the extra text is not installed")
    folder = shared_folder("tiny_decoder", write_decoder) / "tiny"
    with Server([folder], port=0, options=ModelConfig(threads=1)) as running:
        yield running


@pytest.fixture(scope="session")
def raw() -> type[Raw]:
    return Raw


@pytest.fixture(scope="session")
def make_reply() -> Callable[..., bytes]:
    return reply
