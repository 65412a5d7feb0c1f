"""Batches as clients meet them: everybody gets their own row, bad rows hurt nobody else, queues are bounded."""

from __future__ import annotations

import json
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnxruntime
import pytest
from manual_clock import ManualClock
from onnx import TensorProto
from waiting import wait_until

from ox.clock import SYSTEM
from ox.errors import ServeError
from ox.serve import ModelConfig, Server
from ox.serve.batching.job import Job
from ox.serve.config.request_limits import RequestLimits
from ox.serve.protocol.v2.request import Request
from ox.serve.repository.model import Model
from ox.tolerance import compare

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


def model(path: Any, **options: Any) -> Model:
    return Model(path, ModelConfig(device="cpu", **options), RequestLimits())


NEWS = threading.Condition()  # a request has come to a batcher


@pytest.fixture(params=[8000])
def gated(mlp: Any, request: Any) -> Any:
    """A server of one instance whose runs wait for a gate; `batches` notes what ran together."""
    options = ModelConfig(instances=1, deadline_ms=request.param, max_queue=20, max_rows=8)
    clock = ManualClock()
    server = Server([mlp], options=options, clock=clock)
    served = server.models[0]
    submit = served.batcher.submit

    def told(job: Any) -> None:
        try:
            submit(job)
        finally:
            with NEWS:
                NEWS.notify_all()

    served.batcher.submit = told  # type: ignore[method-assign]
    served.inline = False
    gate, entered, batches = threading.Event(), threading.Event(), []
    instance: Any = served.engine.instance(0)  # one without buffers of its own
    real = instance._run

    def run(feed: Any, control: Any) -> Any:
        entered.set()
        gate.wait(120)
        batches.append(len(feed["x"]))
        if np.abs(feed["x"]).max() > 100:
            raise ServeError("the model cannot run on this input", status=400)
        return real(feed, control)

    instance._run = run
    served.batcher._instances = [instance]
    with server, clock:
        yield server, gate, entered, batches
        gate.set()


def ask(connect: Any, server: Server, value: float, rows: int = 1) -> tuple[int, Any]:
    with connect(server) as client:
        entry = {"name": "x", "shape": [rows, 64], "datatype": "FP32", "data": [value] * 64 * rows}
        status, _, body = client.ask("POST", "/v2/models/mlp/infer", json.dumps({"inputs": [entry]}).encode())
        return status, json.loads(body)


def wait_for(server: Server, depth: int) -> None:
    """Until so many requests wait, which they must."""
    batcher = server.models[0].batcher
    with NEWS:
        assert NEWS.wait_for(lambda: batcher.depth >= depth, 120), f"{batcher.depth} wait"


def test_one_bad_request_in_a_batch(gated: Any, connect: Any, mlp: Any) -> None:
    server, gate, entered, batches = gated
    session = onnxruntime.InferenceSession(str(mlp), providers=["CPUExecutionProvider"])
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(ask, connect, server, 0.0)
        entered.wait(120)
        values = [1.0, 2.0, 999.0, 3.0, 4.0]
        asked = [pool.submit(ask, connect, server, value) for value in values]
        wait_for(server, 5)
        gate.set()
        assert first.result()[0] == 200
        for value, future in zip(values, asked, strict=True):
            status, reply = future.result()
            if value > 100:
                assert status == 400 and "cannot run" in reply["error"]
            else:
                expected = session.run(None, {"x": np.full((1, 64), value, np.float32)})[0]
                got = np.array(reply["outputs"][0]["data"], np.float32).reshape(1, 10)
                assert status == 200 and compare(got, expected).ok
    assert batches[:3] == [1, 5, 2] and len(batches) < 9  # halves, until the culprit is alone


@pytest.mark.parametrize("gated", [300], indirect=True)
def test_deadline_and_full_queue(gated: Any, connect: Any) -> None:
    server, gate, entered, _ = gated
    with ThreadPoolExecutor(32) as pool:
        first = pool.submit(ask, connect, server, 0.0)
        entered.wait(120)
        others = [pool.submit(ask, connect, server, 1.0) for _ in range(25)]
        batcher, clock = server.models[0].batcher, server.clock
        assert isinstance(clock, ManualClock)
        with NEWS:
            assert NEWS.wait_for(lambda: batcher.stats.refused == 5, 120)
        clock.advance(0.3)
        statuses = sorted(future.result()[0] for future in others)
        assert statuses == [503] * 5 + [504] * 20
        assert first.result()[0] == 504  # it ran for too long
        gate.set()
    assert ask(connect, server, 1.0)[0] == 200


def test_batches_form_behind_a_busy_instance_and_respect_rows(gated: Any, connect: Any) -> None:
    server, gate, entered, batches = gated
    with ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(ask, connect, server, 0.0)]
        entered.wait(120)
        for rows in (3, 3, 3, 1, 10):
            asked.append(pool.submit(ask, connect, server, 1.0, rows))
            wait_for(server, len(asked) - 1)
        gate.set()
        assert [future.result()[0] for future in asked] == [200] * 6
    assert batches == [1, 7, 3, 10]  # 3 + 3 + 1, then the 3 that did not fit, then more than a batch, alone


def test_gone_clients_are_not_run(gated: Any, connect: Any) -> None:
    server, gate, entered, batches = gated
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, connect, server, 0.0)
        entered.wait(120)
        entry = {"name": "x", "shape": [1, 64], "datatype": "FP32", "data": [1.0] * 64}
        body = json.dumps({"inputs": [entry]}).encode()
        with connect(server) as client:
            client.send(
                b"POST /v2/models/mlp/infer HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
            )
            wait_for(server, 1)
            # A plain close looks like a client that still reads; a reset does not.
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_until(lambda: len(server._listener_state.connections) == 1)  # the reset has come through the system
        gate.set()
        assert first.result()[0] == 200
    assert ask(connect, server, 2.0)[0] == 200
    assert batches == [1, 1]


@pytest.mark.parametrize("inline", [True, False])
def test_many_clients_each_get_their_own_row(mlp: Any, connect: Any, infer: Any, inline: bool) -> None:
    session = onnxruntime.InferenceSession(str(mlp), providers=["CPUExecutionProvider"])
    server = Server([mlp], options=ModelConfig(instances=2))
    server.models[0].inline = inline

    def one(seed: int) -> None:
        random = np.random.default_rng(seed)
        with connect(server) as client:
            for _ in range(30):
                x = random.standard_normal((int(random.integers(1, 4)), 64)).astype(np.float32)
                y = infer(client, "mlp", x=x)["y"]
                assert compare(y, session.run(None, {"x": x})[0]).ok

    with server, ThreadPoolExecutor(16) as pool:
        list(pool.map(one, range(16)))
        with connect(server) as client:
            text = client.ask("GET", "/metrics")[2].decode()
    counts = {line.split(" ")[0]: float(line.split(" ")[1]) for line in text.splitlines() if line[0] != "#"}
    assert counts['ox_requests_total{status="200"}'] == 16 * 30
    assert 0 < counts['ox_batch_rows_count{model="mlp",version="1"}'] <= 16 * 30


def test_shapes_do_not_mix(build: Any, connect: Any, infer: Any) -> None:
    path = build(
        "echo", [("Identity", ["x"], ["y"], {})], {"x": (FLOAT, ["batch", "t"])}, {"y": (FLOAT, ["batch", "t"])}
    )
    server = Server([path], options=ModelConfig(instances=1, max_wait_ms=5))

    def one(size: int) -> None:
        with connect(server) as client:
            for step in range(10):
                x = np.full((1, size % 4 + 1), size + step / 16, np.float32)
                assert (infer(client, "echo", x=x)["y"] == x).all()

    with server, ThreadPoolExecutor(12) as pool:
        assert server.models[0].proof.why is None
        list(pool.map(one, range(12)))
        assert server.models[0].stages.batch_rows.counts[0] < 120  # some did share a batch


def test_index_out_of_range_is_the_clients_fault(build: Any, connect: Any) -> None:
    nodes = [("Gather", ["table", "x"], ["y"], {})]
    table = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    path = build("gather", nodes, {"x": (INT, ["batch", 2])}, {"y": (FLOAT, ["batch", 2, 3])}, {"table": table})
    with Server([path], options=ModelConfig(instances=1)) as server, connect(server) as client:
        for indices, expected in (([0, 4], 200), ([0, 5], 400)):
            entry = {"name": "x", "shape": [1, 2], "datatype": "INT64", "data": indices}
            status, _, body = client.ask("POST", "/v2/models/gather/infer", json.dumps({"inputs": [entry]}).encode())
            assert status == expected, body
        assert b"out of data bounds" in body and b"/" not in body.replace(b"/v2", b"")


def test_what_arrives_together_shares_a_batch(mlp: Any, connect: Any) -> None:
    entry = {"name": "x", "shape": [1, 64], "datatype": "FP32", "data": [1.0] * 64}
    body = json.dumps({"inputs": [entry]}).encode()
    request = b"POST /v2/models/mlp/infer HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    server = Server([mlp], options=ModelConfig(instances=1))
    server.models[0].inline = True
    with server, connect(server) as client:
        client.send(request * 12)
        answers = [client.reply() for _ in range(12)]
    assert {status for status, _, _ in answers} == {200} and len({body for _, _, body in answers}) == 1
    assert sum(server.models[0].stages.batch_rows.counts) < 12


def test_a_model_that_slows_down_gets_a_thread(mlp: Any) -> None:
    served = model(mlp)
    served.inline = True
    for _ in range(100):
        served._ran(1, 0.01, 0.0)
    assert not served.inline


@pytest.fixture
def endless(build: Any, loop_body: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A model that goes round `n` times; loaded without a process of its own, as tests/serve/runtime tests it."""
    monkeypatch.setattr("ox.serve.repository.loading.probe", lambda *_: None)
    nodes = [("Loop", ["n", "go", "x"], ["y"], {"body": loop_body})]
    inputs = {"n": (INT, []), "x": (FLOAT, ["batch", 1])}
    return build("endless", nodes, inputs, {"y": (FLOAT, ["batch", 1])}, {"go": np.array(True)})


def test_a_plain_close_frees_the_instance_within_the_longest_timeout(endless: Any, connect: Any) -> None:
    """It looks like a client that has only ended its sending, which still gets its answer."""
    options, limits = ModelConfig(instances=1, deadline_ms=100), RequestLimits(timeout_s=0.3)
    inputs = [
        {"name": "n", "shape": [], "datatype": "INT64", "data": [1 << 60]},
        {"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [2.0]},
    ]
    body = json.dumps({"inputs": inputs, "parameters": {"timeout": 3_600_000_000}}).encode()
    head = b"POST /v2/models/endless/infer HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
    with Server([endless], options=options, limits=limits) as server:
        batcher = server.models[0].batcher
        with connect(server) as client:
            client.send(head + body)
            wait_until(lambda: any(batcher._running_batches))
        wait_until(lambda: not any(batcher._running_batches))
        assert batcher.stats.late == 1
        with connect(server) as client:  # one that has only ended its sending is told
            client.send(head + body)
            client.socket.shutdown(socket.SHUT_WR)
            status, _, reply = client.reply()
            assert status == 504 and b"--limit timeout_s" in reply


def test_a_timeout_ends_a_run_that_would_never_end(endless: Any, connect: Any) -> None:
    path = endless
    with Server([path], options=ModelConfig(instances=1)) as server:
        for rounds, timeout, expected in ((1 << 60, 100_000, 504), (3, 0, 200)):
            request = {
                "parameters": {"timeout": timeout},
                "inputs": [
                    {"name": "n", "shape": [], "datatype": "INT64", "data": [rounds]},
                    {"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [2.0]},
                ],
            }
            with connect(server) as client:
                status, _, reply = client.ask("POST", "/v2/models/endless/infer", json.dumps(request).encode())
                assert status == expected, reply
        with connect(server) as client:  # who leaves ends it, too
            del request["parameters"]
            request["inputs"][0]["data"] = [1 << 60]
            body = json.dumps(request).encode()
            head = b"POST /v2/models/endless/infer HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
            client.send(head + body)
            batcher = server.models[0].batcher
            wait_until(lambda: any(batcher._running_batches))
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_until(lambda: not any(batcher._running_batches))


def test_two_servers_in_one_process_have_their_own_limits(build: Any, mlp: Any) -> None:
    other = build("other", [("Identity", ["x"], ["y"], {})], {"x": (FLOAT, ["batch", 2])}, {"y": (FLOAT, ["batch", 2])})
    servers = [
        Server([mlp, other], options=ModelConfig(instances=1), limits=RequestLimits(buffered=size))
        for size in (600, 300)
    ]
    row = {"x": np.zeros((1, 64), np.float32)}  # 256 bytes
    intakes = [[served.batcher._admission for served in server.models] for server in servers]
    for pair in intakes:
        for admission in pair:
            admission.open()  # as if it ran, but nothing takes what waits
    for pair, fits in zip(intakes, (2, 1), strict=True):
        for admission in (pair[index % 2] for index in range(fits)):  # both models of a server draw on it
            admission.put(Job(Request(None, row, 1, (), ()), SYSTEM.now()), ())
        with pytest.raises(ServeError, match="busy") as caught:
            pair[fits % 2].put(Job(Request(None, row, 1, (), ()), SYSTEM.now()), ())
        assert caught.value.got == f"{256 * fits} bytes wait already"
