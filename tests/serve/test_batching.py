"""Batches: proven or off, everybody gets their own row, bad rows hurt nobody else, queues are bounded."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

from ox.errors import ServeError
from ox.serve import Options, Server
from ox.serve.batching.batcher import Batcher
from ox.serve.batching.job import Job
from ox.serve.engine.proof import buckets
from ox.serve.limits import Limits
from ox.serve.repository.model import Model
from ox.serve.v2.request import Request
from ox.tolerance import compare

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


def model(path: Any, **options: Any) -> Model:
    return Model(path, Options(device="cpu", **options), Limits())


# ---- the proof


def test_buckets() -> None:
    assert [buckets(n) for n in (1, 2, 6, 8)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]


def test_proven(mlp: Any) -> None:
    proven = model(mlp)
    assert (proven.proof.max_rows, proven.proof.why) == (8, None)
    assert "batches up to 8, proven row by row" in proven.describe()


BATCH = ["batch", 4]
SUM = np.array([0], np.int64)
ROW_MIXERS: list[tuple[str, list[Any], dict[str, Any], list[Any], str]] = [
    ("mean over rows", [("ReduceMean", ["x", "axis"], ["m"], {"keepdims": 1}), ("Add", ["x", "m"], ["y"], {})],
     {"axis": SUM}, BATCH, "differs from the same row alone"),
    ("softmax over rows", [("Softmax", ["x"], ["y"], {"axis": 0})], {}, BATCH, "depend"),
    ("running sum", [("CumSum", ["x", "axis"], ["y"], {})], {"axis": np.array(0)}, BATCH, "differs"),
    ("reversed", [("Slice", ["x", "start", "end", "axes", "steps"], ["y"], {})],
     {"start": np.array([-1]), "end": np.array([-1000]), "axes": SUM, "steps": np.array([-1])}, BATCH, "differs"),
    ("pairs of rows", [("Reshape", ["x", "shape"], ["y"], {})],
     {"shape": np.array([-1, 8])}, ["half", 8], "no valid inputs"),
    ("total", [("ReduceSum", ["x", "axis"], ["y"], {"keepdims": 1})],
     {"axis": SUM}, ["one", 4], "fixed first dimension 1"),
    ("pairs, padded", [("Reshape", ["x", "shape"], ["p"], {}), ("ReduceMax", ["p", "axis"], ["y"], {"keepdims": 1})],
     {"shape": np.array([-1, 1, 4]), "axis": SUM}, ["some", 1, 4], "fixed first dimension 1"),
    ("only pairs", [("Reshape", ["x", "shape"], ["y"], {})], {"shape": np.array([-1, 2])}, ["some", 2], "one row out"),
    ("random", [("RandomNormalLike", ["x"], ["y"], {})], {}, BATCH, "differs"),
    ("constant", [("Mul", ["x", "zero"], ["y"], {})], {"zero": np.zeros(1, np.float32)}, BATCH, "do not depend"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "weights", "out", "why"), [c[1:] for c in ROW_MIXERS], ids=[c[0] for c in ROW_MIXERS]
)
def test_not_provable(build: Any, nodes: Any, weights: Any, out: Any, why: str) -> None:
    mixing = model(build("mixing", nodes, {"x": (FLOAT, BATCH)}, {"y": (FLOAT, out)}, weights))
    assert mixing.proof.max_rows == 1 and why in (mixing.proof.why or "")
    assert f"batching off: {mixing.proof.why}" in mixing.describe()


@pytest.mark.parametrize(
    ("inputs", "outputs", "why"),
    [
        ({"x": (FLOAT, [1, 4])}, {"y": (FLOAT, [1, 4])}, "input 'x' has the fixed first dimension 1"),
        ({"x": (FLOAT, ["n", 4])}, {"y": (FLOAT, [2, 4])}, "output 'y' has the fixed first dimension 2"),
        ({"x": (FLOAT, ["n", "n"])}, {"y": (FLOAT, ["n", "n"])}, "'n' is more than the first dimension"),
        ({"x": (FLOAT, [])}, {"y": (FLOAT, [])}, "input 'x' has no dimensions"),
    ],
)
def test_interface_that_does_not_promise_batches(build: Any, inputs: Any, outputs: Any, why: str) -> None:
    proof = model(build("plain", [("Identity", ["x"], ["y"], {})], inputs, outputs)).proof
    assert proof.max_rows == 1 and proof.why == why


def test_two_first_dimensions(build: Any) -> None:
    inputs = {"a": (FLOAT, ["n", 4]), "b": (FLOAT, ["m", 4])}
    proof = model(build("two", [("Add", ["a", "b"], ["y"], {})], inputs, {"y": (FLOAT, ["k", 4])})).proof
    assert proof.why == "the inputs do not share one named first dimension"


def test_integers_are_valid_indices(build: Any) -> None:
    table = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    nodes = [("Gather", ["table", "x"], ["y"], {})]
    gather = build("gather", nodes, {"x": (INT, ["batch", "t"])}, {"y": (FLOAT, ["batch", "t", 3])}, {"table": table})
    assert model(gather).proof.why is None


# ---- through the server


@pytest.fixture
def gated(mlp: Any) -> Any:
    """A server of one instance whose runs wait for a gate; `batches` notes what ran together."""
    server = Server([mlp], options=Options(instances=1, deadline_ms=300, max_queue=20))
    served = server.models[0]
    served.inline = False
    gate, entered, batches = threading.Event(), threading.Event(), []
    real = served.engine.run

    def run(feed: Any) -> Any:
        entered.set()
        gate.wait(5)
        batches.append(len(feed["x"]))
        if np.abs(feed["x"]).max() > 100:
            raise ServeError("the model cannot run on this input", status=400)
        return real(feed)

    served.batcher._runs = [run]
    with server:
        yield server, gate, entered, batches
        gate.set()


def ask(connect: Any, server: Server, value: float, rows: int = 1) -> tuple[int, Any]:
    with connect(server) as client:
        entry = {"name": "x", "shape": [rows, 64], "datatype": "FP32", "data": [value] * 64 * rows}
        status, _, body = client.ask("POST", "/v2/models/mlp/infer", json.dumps({"inputs": [entry]}).encode())
        return status, json.loads(body)


def test_one_bad_request_in_a_batch(gated: Any, connect: Any, mlp: Any) -> None:
    server, gate, entered, batches = gated
    session = onnxruntime.InferenceSession(str(mlp), providers=["CPUExecutionProvider"])
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(ask, connect, server, 0.0)
        entered.wait(5)
        values = [1.0, 2.0, 999.0, 3.0, 4.0]
        asked = [pool.submit(ask, connect, server, value) for value in values]
        while server.models[0].batcher.depth < 5:
            time.sleep(0.001)
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
    assert batches == [1, 5, 1, 1, 1, 1, 1]


def test_deadline_and_full_queue(gated: Any, connect: Any) -> None:
    server, gate, entered, _ = gated
    with ThreadPoolExecutor(32) as pool:
        first = pool.submit(ask, connect, server, 0.0)
        entered.wait(5)
        start = time.monotonic()
        others = [pool.submit(ask, connect, server, 1.0) for _ in range(25)]
        statuses = sorted(future.result()[0] for future in others)
        assert time.monotonic() - start < 2  # answered while the only instance is still busy
        assert statuses == [503] * 5 + [504] * 20
        gate.set()
        assert first.result()[0] == 200
    assert ask(connect, server, 1.0)[0] == 200


def test_batches_form_behind_a_busy_instance_and_respect_rows(gated: Any, connect: Any) -> None:
    server, gate, entered, batches = gated
    with ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(ask, connect, server, 0.0)]
        entered.wait(5)
        for rows in (3, 3, 3, 1, 20):
            asked.append(pool.submit(ask, connect, server, 1.0, rows))
            while server.models[0].batcher.depth < len(asked) - 1:
                time.sleep(0.001)
        gate.set()
        assert [future.result()[0] for future in asked] == [200] * 6
    assert batches == [1, 7, 3, 20]  # 3 + 3 + 1, then the 3 that did not fit, then more than a batch, alone


def test_gone_clients_are_not_run(gated: Any, connect: Any) -> None:
    server, gate, entered, batches = gated
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, connect, server, 0.0)
        entered.wait(5)
        entry = {"name": "x", "shape": [1, 64], "datatype": "FP32", "data": [1.0] * 64}
        body = json.dumps({"inputs": [entry]}).encode()
        with connect(server) as client:
            client.send(
                b"POST /v2/models/mlp/infer HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
            )
            while server.models[0].batcher.depth < 1:
                time.sleep(0.001)
            # A plain close looks like a client that still reads; a reset does not.
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        time.sleep(0.05)
        gate.set()
        assert first.result()[0] == 200
    assert ask(connect, server, 2.0)[0] == 200
    assert batches == [1, 1]


@pytest.mark.parametrize("inline", [True, False])
def test_many_clients_each_get_their_own_row(mlp: Any, connect: Any, infer: Any, inline: bool) -> None:
    session = onnxruntime.InferenceSession(str(mlp), providers=["CPUExecutionProvider"])
    server = Server([mlp], options=Options(instances=2))
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
    assert counts['ox_batch_rows_count{model="mlp"}'] <= 16 * 30


def test_shapes_do_not_mix(build: Any, connect: Any, infer: Any) -> None:
    path = build(
        "echo", [("Identity", ["x"], ["y"], {})], {"x": (FLOAT, ["batch", "t"])}, {"y": (FLOAT, ["batch", "t"])}
    )
    server = Server([path], options=Options(instances=1, max_wait_ms=5))

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
    with Server([path], options=Options(instances=1)) as server, connect(server) as client:
        for indices, expected in (([0, 4], 200), ([0, 5], 400)):
            entry = {"name": "x", "shape": [1, 2], "datatype": "INT64", "data": indices}
            status, _, body = client.ask("POST", "/v2/models/gather/infer", json.dumps({"inputs": [entry]}).encode())
            assert status == expected, body
        assert b"out of data bounds" in body and b"/" not in body.replace(b"/v2", b"")


def test_what_arrives_together_shares_a_batch(mlp: Any, connect: Any) -> None:
    entry = {"name": "x", "shape": [1, 64], "datatype": "FP32", "data": [1.0] * 64}
    body = json.dumps({"inputs": [entry]}).encode()
    request = b"POST /v2/models/mlp/infer HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    server = Server([mlp], options=Options(instances=1))
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
        served._ran(1, 0.01)
    assert not served.inline


# ---- the batcher alone


class Note(Job):
    __slots__ = ("finished",)

    def __init__(self, rows: int, key: tuple[Any, ...] = ()) -> None:
        feed = {"x": np.full((rows, *(key or (1,))), 0, np.float32)}
        super().__init__(Request(None, feed, rows, key, ()))
        self.finished = asyncio.get_running_loop().create_future()

    def done(self) -> None:
        self.finished.set_result(self.error)


def run_batcher(jobs: Any, **options: Any) -> list[int]:
    """Submits (rows, key, delay in seconds) to a one-instance batcher; the rows of each batch."""
    settings: dict[str, Any] = {"max_rows": 8, "max_wait_s": 0.0, "deadline_s": 5.0, "max_queue": 100}
    batches: list[int] = []

    async def main() -> None:
        batcher = Batcher(
            [lambda feed: [feed["x"]]], **(settings | options), observe=lambda rows, _: batches.append(rows)
        )
        batcher.start(asyncio.get_running_loop())
        notes = []
        for rows, key, delay in jobs:
            await asyncio.sleep(delay)
            notes.append(Note(rows, key))
            batcher.submit(notes[-1])
        await asyncio.gather(*(note.finished for note in notes))
        for note in notes:
            assert note.error is None and len(note.outputs[0]) == note.request.rows
        batcher.close()

    asyncio.run(main())
    return batches


def test_waiting_for_a_fuller_batch() -> None:
    assert run_batcher([(1, (), 0), (1, (), 0.02), (1, (), 0.02)], max_wait_s=0.5, max_rows=3) == [3]
    assert run_batcher([(1, (), 0), (1, (), 0.15)], max_wait_s=0.05) == [1, 1]


def test_a_crash_that_is_not_ours() -> None:
    async def main() -> Any:
        def run(feed: Any) -> Any:
            raise MemoryError("no memory")

        batcher = Batcher([run], max_rows=8, max_wait_s=0, deadline_s=5, max_queue=9, observe=lambda *_: None)
        batcher.start(asyncio.get_running_loop())
        notes = [Note(1), Note(1)]
        for note in notes:
            batcher.submit(note)
        errors = await asyncio.gather(*(note.finished for note in notes))
        batcher.close()
        return errors

    assert [error.status for error in asyncio.run(main())] == [500, 500]
