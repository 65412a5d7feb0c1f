"""Answers that are large: who reads at full speed gets all of it, who does not read holds up nobody else for long."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from manual_clock import ManualClock
from onnx import TensorProto
from waiting import give_way, wait_until

from ox.serve import ModelConfig, RequestLimits, Server
from ox.serve.config.request_limits import MIB

grpc = pytest.importorskip("grpc", reason="grpcio is not installed")

WIDTH = MIB  # numbers in a row of an answer: 4 MiB
SIZE = 4 * WIDTH
LIMITS = RequestLimits(unread=5 * SIZE, write_s=4.0, idle_s=20.0, drain_s=2.0)
ROOM = LIMITS.unread + 2 * SIZE + MIB  # text that is being written of an array counts beside it
QUICK = "/inference.GRPCInferenceService/"


@pytest.fixture(scope="module")
def paths(build: Callable[..., Path]) -> list[Path]:
    """`big` makes 4 MiB of each number, in rows that could be batched; `loose` does not say how much; `small` does
    nothing."""
    batch = {"x": (TensorProto.FLOAT, ["batch", 1])}
    shape = {"shape": np.array([1, WIDTH])}
    node = [("Expand", ["x", "shape"], ["y"], {})]
    return [
        build("big", node, batch, {"y": (TensorProto.FLOAT, ["batch", WIDTH])}, shape),
        build("loose", node, batch, {"y": (TensorProto.FLOAT, ["batch", "width"])}, shape),
        build("small", [("Identity", ["x"], ["y"], {})], batch, {"y": (TensorProto.FLOAT, ["batch", 1])}),
    ]


@pytest.fixture
def running(paths: list[Path], request: pytest.FixtureRequest) -> Iterator[Server]:
    options = ModelConfig(device="cpu", instances=2, deadline_ms=60_000)
    limits, grpc_kind = getattr(request, "param", (LIMITS, "own"))
    with Server(paths, options=options, limits=limits, grpc=grpc_kind, grpc_port=0) as server:
        yield server


def post(value: float, model: str = "big", binary: bool = True, rows: int = 1) -> bytes:
    entry = {"name": "x", "shape": [rows, 1], "datatype": "FP32", "parameters": {"binary_data_size": 4 * rows}}
    text = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": binary}}).encode()
    head = (
        f"POST /v2/models/{model}/infer HTTP/1.1\r\nhost: x\r\ncontent-length: {len(text) + 4 * rows}\r\n"
        f"inference-header-content-length: {len(text)}\r\n\r\n"
    )
    return head.encode() + text + struct.pack("<f", value) * rows


def reply(client: Any) -> tuple[int, dict[str, str], bytes]:
    """The next answer. The client's own way of reading it takes the square of its size."""
    while b"\r\n\r\n" not in client.buffer:
        client._more()
    head, _, rest = client.buffer.partition(b"\r\n\r\n")
    start, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    body, length = bytearray(rest), int(headers["content-length"])
    while len(body) < length:
        piece = client.socket.recv(min(1 << 20, length - len(body)))
        if not piece:
            raise ConnectionError(f"cut after {len(body)} of {length} bytes")
        body += piece
    client.buffer = bytes(body[length:])
    return int(start.split()[1]), headers, bytes(body[:length])


def right(answer: tuple[int, dict[str, str], bytes], value: float, size: int = SIZE) -> bool:
    status, headers, body = answer
    assert status == 200, (status, body[:300])
    data = body[int(headers["inference-header-content-length"]) :]
    return len(data) == size and bool((np.frombuffer(data, np.float32) == value).all())


def message(value: float, model: str = "big") -> bytes:
    from ox.serve.protocol.grpc.proto import message as kind

    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 1]}
    asked = kind("inference.ModelInferRequest")(
        model_name=model, inputs=[tensor], raw_input_contents=[struct.pack("<f", value)]
    )
    return bytes(asked.SerializeToString())


def holds(answer: bytes, value: float) -> bool:
    """The tensor is the last field of an answer."""
    return len(answer) > SIZE and bool((np.frombuffer(answer[-SIZE:], np.float32) == value).all())


class Watch:
    """Notes the most bytes that answers held."""

    def __init__(self, server: Server) -> None:
        self.memory, self.listener_state = server.model_manager.answers, server._listener_state
        self.copies = server.settings.grpc == "grpcio"

    def __enter__(self) -> Watch:
        self.memory.peak = 0
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            # grpc-core takes copies.
            assert 0 < self.memory.peak <= (2 * ROOM if self.copies else ROOM)
            wait_until(lambda: self.memory.used == 0)
            assert self.listener_state.unread == 0


# ---- full speed


@pytest.mark.parametrize("model", ["big", "loose"])
def test_nobody_who_reads_is_cut_over_http(running: Server, connect: Any, model: str) -> None:
    def one(value: int) -> bool:
        with connect(running) as client:
            done = []
            for turn in range(3):
                client.send(post(value + turn, model))
                done.append(right(reply(client), value + turn))
            return all(done)

    with Watch(running) as watch, ThreadPoolExecutor(16) as pool:
        assert all(pool.map(one, range(16)))
        assert watch.memory.wait_count > 0 and watch.listener_state.slow_clients == 0


def test_pipelined(running: Server, connect: Any) -> None:
    """More than the memory holds, all from one connection, with small ones between them."""
    with Watch(running) as watch, connect(running) as client:
        wanted = [(n, "small" if n % 3 == 2 else "big") for n in range(14)]
        client.send(b"".join(post(n, model) for n, model in wanted))
        for n, model in wanted:
            assert right(reply(client), n, SIZE if model == "big" else 4)
        assert watch.listener_state.slow_clients == 0


def test_the_last_answer_before_a_connection_closes(running: Server, connect: Any) -> None:
    """Whoever closes one half of it, or asks for its end, gets all of the answer."""
    with Watch(running), connect(running) as client:
        client.send(post(7))
        client.socket.shutdown(socket.SHUT_WR)
        assert right(reply(client), 7) and client.closed()
    with Watch(running), connect(running) as client:
        client.send(post(8).replace(b"host: x", b"host: x\r\nconnection: close"))
        assert right(reply(client), 8) and client.closed()


def test_a_batch_of_large_answers(running: Server, connect: Any) -> None:
    with Watch(running), ExitStack() as stack:
        clients = [stack.enter_context(connect(running)) for _ in range(3)]
        for n, client in enumerate(clients):
            client.send(post(n, rows=2))
        assert all(right(reply(client), n, 2 * SIZE) for n, client in enumerate(clients))


def test_packed_for_whoever_wants_it(running: Server, connect: Any) -> None:
    import gzip

    with connect(running) as client:
        client.send(post(0, "small", rows=4000).replace(b"host: x", b"host: x\r\naccept-encoding: gzip"))
        status, headers, body = reply(client)
        assert status == 200 and headers["content-encoding"] == "gzip"
        assert len(gzip.decompress(body)) - int(headers["inference-header-content-length"]) == 16_000
        client.send(post(0, "small", rows=4096 * 4).replace(b"host: x", b"host: x\r\naccept-encoding: gzip"))
        assert reply(client)[0] == 413  # rows
    limits = replace(LIMITS, rows=1 << 16)
    files = running.model_manager.layout.files
    with Server(files, options=ModelConfig(device="cpu"), limits=limits) as wide, Watch(wide), connect(wide) as client:
        client.send(post(5, "small", rows=40_000).replace(b"host: x", b"host: x\r\naccept-encoding: gzip"))
        _, headers, body = reply(client)
        data = gzip.decompress(body)[int(headers["inference-header-content-length"]) :]
        assert (np.frombuffer(data, np.float32) == 5).all() and len(data) == 160_000


@pytest.mark.parametrize("running", [(replace(LIMITS, reply=32 * MIB), "own")], indirect=True)
def test_text_counts(running: Server, connect: Any) -> None:
    """An answer in JSON is several times as large as the numbers in it."""
    with Watch(running) as watch, ExitStack() as stack:
        clients = [stack.enter_context(connect(running)) for _ in range(5)]
        for client in clients:
            client.send(post(1.5, binary=False))
        for client in clients:
            status, _, body = reply(client)
            assert status == 200 and json.loads(body)["outputs"][0]["data"] == [1.5] * WIDTH
        assert watch.memory.wait_count > 0


BOTH = pytest.mark.parametrize("running", [(LIMITS, "own"), (LIMITS, "grpcio")], indirect=True, ids=["own", "grpcio"])


@BOTH
def test_nobody_who_reads_is_cut_over_grpc(running: Server) -> None:
    def one(value: int) -> bool:
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(f"127.0.0.1:{running.grpc_port}", options=options) as channel:
            call = channel.unary_unary(f"{QUICK}ModelInfer")
            calls = [call.future(message(value + n), timeout=60) for n in range(3)]  # at once, over one connection
            return all(holds(call.result(), value + n) for n, call in enumerate(calls))

    with Watch(running) as watch, ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(8)))
        assert watch.listener_state.slow_clients == 0


@BOTH
def test_nobody_who_reads_is_cut_in_a_stream(running: Server) -> None:
    def one(value: int) -> bool:
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(f"127.0.0.1:{running.grpc_port}", options=options) as channel:
            asked = (message(value + n) for n in range(6))
            answers = channel.stream_stream(f"{QUICK}ModelStreamInfer")(asked, timeout=60)
            return [holds(answer, value + n) for n, answer in enumerate(answers)] == [True] * 6

    with Watch(running) as watch, ThreadPoolExecutor(4) as pool:
        assert all(pool.map(one, range(4)))
        assert watch.listener_state.slow_clients == 0


# ---- slow ones


def idle_reader(server: Server, data: bytes) -> socket.socket:
    """Asks and does not read; the system keeps little for it."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.settimeout(120)
    made.connect((server.host, server.port))
    made.sendall(data)
    return made


def outcome(reader: socket.socket) -> str:
    """What came of a whole answer."""
    got = b""
    try:
        while piece := reader.recv(1 << 20):
            got += piece
    except ConnectionResetError:
        return "cut" if got else "nothing"
    return "whole" if len(got) > SIZE else "cut"


@pytest.mark.slow
def test_slow_readers_are_ended_and_the_others_go_on(running: Server, connect: Any) -> None:
    with Watch(running) as watch, ExitStack() as stack:
        readers = [stack.enter_context(idle_reader(running, post(n))) for n in range(12)]
        wait_until(lambda: watch.memory.waiting_since is not None)
        with connect(running) as other:  # small answers do not wait at all
            other.send(post(3, "small"))
            assert right(reply(other), 3, 4)
            other.send(post(4))
            assert right(reply(other), 4)
        assert watch.listener_state.slow_clients >= 8
        outcomes = Counter(map(outcome, readers))
        assert outcomes["cut"] + outcomes["nothing"] >= watch.listener_state.slow_clients - 4


def test_who_reads_slowly_without_need_gets_all(paths: list[Path]) -> None:
    """4 KiB a second are enough as long as nobody waits for the memory."""
    clock = ManualClock()
    server = Server(paths, options=ModelConfig(device="cpu", instances=2), limits=LIMITS, clock=clock)
    with server, clock, Watch(server) as watch, idle_reader(server, post(1)) as reader:
        wait_until(lambda: watch.memory.used >= SIZE)
        for _ in range(3):
            clock.advance(LIMITS.write_s / 4)
            asyncio.run_coroutine_threadsafe(give_way(2), server._loop).result(120)  # it looks at its connections
        reader.settimeout(120)
        got = 0
        while got < SIZE:
            got += len(reader.recv(1 << 20))
        assert watch.listener_state.slow_clients == 0


def test_answers_behind_one_that_waits_make_room(paths: list[Path], connect: Any) -> None:
    """A connection asks for a small thing that takes long and then for large ones, which hold memory until its turn
    comes; nothing of them has been sent, so they can still be refused."""
    gate = threading.Event()
    server = Server(paths, options=ModelConfig(device="cpu", instances=1, deadline_ms=60_000), limits=LIMITS)
    small = next(model for model in server.models if model.name == "small")
    instance: Any = small.engine.instance(0)
    real, small.inline = instance._run, False

    def run(feed: Any, control: Any) -> Any:
        gate.wait(120)
        return real(feed, control)

    instance._run = run
    small.batcher._instances = [instance]
    with server, Watch(server) as watch, connect(server) as client, connect(server) as other:
        client.send(post(1, "small") + b"".join(post(n) for n in range(2, 10)))
        wait_until(lambda: watch.memory.waiting_since is not None)
        other.send(post(50))
        assert right(reply(other), 50)
        gate.set()
        assert right(reply(client), 1, 4)
        statuses = Counter(reply(client)[0] for _ in range(8))
        assert statuses[503] and statuses[200] + statuses[503] == 8
        assert watch.listener_state.slow_clients == 0


@pytest.mark.slow
def test_24_mb_at_full_speed(build: Callable[..., Path], connect: Any) -> None:
    """With the limits that everybody has, which let 10 such answers wait at once."""
    width, clients = 6_000_000, 48
    path = build(
        "huge",
        [("Expand", ["x", "shape"], ["y"], {})],
        {"x": (TensorProto.FLOAT, ["batch", 1])},
        {"y": (TensorProto.FLOAT, ["batch", width])},
        {"shape": np.array([1, width])},
    )

    with Server([path], options=ModelConfig(device="cpu", deadline_ms=600_000)) as server:

        def one(value: int) -> bool:
            with connect(server) as client:
                client.socket.settimeout(600)  # how long it takes says how busy the machine is
                client.send(post(value, "huge"))
                return right(reply(client), value, 4 * width)

        with ThreadPoolExecutor(clients) as pool:
            assert all(pool.map(one, range(clients)))
        assert server.model_manager.answers.peak <= server.limits.unread + 2 * 4 * width
