"""What own framing and grpcio must do alike: limits, deadlines, compression, many calls at once, draining."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from ox.serve import RequestLimits, Server
from ox.serve.protocol.grpc.proto import message

Code = grpc.StatusCode
Answer, Stream = message("inference.ModelInferResponse"), message("inference.ModelStreamInferResponse")


def test_many_calls_at_once(wire: Any, ones: Any, expected: Any) -> None:
    def one(n: int) -> bool:
        rows = 1 + n % 3
        answer = Answer.FromString(
            wire.method("ModelInfer")(ones(rows=rows, id=str(n)).SerializeToString(), timeout=300)
        )
        y = np.frombuffer(answer.raw_output_contents[0], np.float32).reshape(rows, 10)
        return answer.id == str(n) and np.allclose(y, expected(rows), rtol=1e-4, atol=1e-4)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(one, range(300)))


def test_a_call_that_is_cancelled_abandons_its_job(wire: Any, ones: Any, held: Any) -> None:
    call = wire.method("ModelInfer").future(ones().SerializeToString())
    held.wait(1)
    call.cancel()
    assert held.abandoned(1)


def test_a_client_that_leaves_abandons_its_jobs(grpc_server: Server, dial: Any, ones: Any, held: Any) -> None:
    wire = dial(f"127.0.0.1:{grpc_server.grpc_port}")
    calls = [wire.method("ModelInfer").future(ones().SerializeToString()) for _ in range(3)]
    held.wait(3)
    wire.channel.close()
    assert held.abandoned(3)
    assert all(call.done() for call in calls)


def test_a_deadline(wire: Any, ones: Any, held: Any) -> None:
    """The client's time is the job's; once it is over nobody waits."""
    seconds = 0.1
    while not held.jobs:  # grpcio's time is real: it must be enough for the call to arrive
        seconds *= 2
        with pytest.raises(grpc.RpcError) as caught:
            wire.method("ModelInfer")(ones().SerializeToString(), timeout=seconds)
        assert caught.value.code() == Code.DEADLINE_EXCEEDED
    (job,) = held.jobs
    assert job.deadline is not None and 0 < job.deadline - job.arrived < seconds + 0.1
    assert held.abandoned(1)


def test_the_parameter_timeout(wire: Any, ones: Any, held: Any) -> None:
    """Whichever of the two ends first."""
    for microseconds, seconds, least, most in ((600_000_000, 300, 100, 301), (100_000_000, 300, 99, 101)):
        body = ones(parameters={"timeout": {"int64_param": microseconds}}).SerializeToString()
        call = wire.method("ModelInfer").future(body, timeout=seconds)
        held.wait(len(held.jobs) or 1)
        job = held.jobs[-1]
        assert least < job.deadline - job.arrived < most
        call.cancel()
        assert held.abandoned(len(held.jobs))
        held.jobs.clear()


def test_a_message_that_is_too_large(grpc_server: Server, wire: Any, ones: Any) -> None:
    rows = grpc_server.limits.body // 256 + 1
    code, said = wire.refused("ModelInfer", ones(rows=rows).SerializeToString())
    assert code == Code.RESOURCE_EXHAUSTED and str(grpc_server.limits.body) in said
    with pytest.raises(grpc.RpcError) as caught:
        list(wire.stream()(iter([ones(rows=rows).SerializeToString()]), timeout=300))
    assert caught.value.code() == Code.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("packing", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compression(grpc_server: Server, wire: Any, ones: Any, expected: Any, packing: Any) -> None:
    call = wire.method("ModelInfer")
    answer = Answer.FromString(call(ones(rows=300).SerializeToString(), compression=packing, timeout=300))
    y = np.frombuffer(answer.raw_output_contents[0], np.float32).reshape(300, 10)
    np.testing.assert_allclose(y, expected(300), rtol=1e-4, atol=1e-4)
    # what would be too large once it is unpacked
    bomb = ones(rows=grpc_server.limits.body // 256 + 10).SerializeToString()
    with pytest.raises(grpc.RpcError) as caught:
        call(bomb, compression=packing, timeout=300)
    assert caught.value.code() == Code.RESOURCE_EXHAUSTED


def test_an_answer_that_is_too_large(wire: Any) -> None:
    shape = {"datatype": "BYTES", "shape": [1, 2]}
    names = ["text", "flags", "image"]
    rows = 3
    fields = {
        "model_name": "mixed",
        "inputs": [
            {"name": "text", **shape, "shape": [rows, 1]},
            {"name": "flags", "datatype": "BOOL", "shape": [rows, 3]},
            {"name": "image", "datatype": "FP32", "shape": [rows, 1, 2, 2]},
        ],
        "raw_input_contents": [
            (70_000).to_bytes(4, "little")
            + b"x" * 70_000
            + bytes(4)
            + (140_000).to_bytes(4, "little")
            + b"x" * 140_000,
            bytes(3 * rows),
            bytes(16 * rows),
        ],
    }
    assert len(names) == len(fields["inputs"])
    code, said = wire.refused("ModelInfer", **fields)
    assert code == Code.RESOURCE_EXHAUSTED
    assert said.startswith("the response is too large; expected at most 200000 bytes")


def test_metadata_of_all_kinds(wire: Any, ones: Any) -> None:
    metadata = [("x-request-id", "7"), ("twice", "a"), ("twice", "b"), ("raw-bin", b"\x00\xff")]
    assert wire.call("ModelInfer", ones().SerializeToString(), metadata=metadata).model_name == "mlp"


@pytest.mark.parametrize("transport", ["own", "grpcio"])
def test_draining_answers_what_was_accepted(
    mlp: Path, transport: str, dial: Callable[[str], Any], ones: Any, expected: Any
) -> None:
    stop, wrong = threading.Event(), []
    # grpc-core cancels what arrives while it shuts down
    fine = {Code.UNAVAILABLE} if transport == "own" else {Code.UNAVAILABLE, Code.CANCELLED}

    def ask(port: int) -> int:
        """Answers until the server is gone; anything but an answer or a refusal is wrong."""
        wire = dial(f"127.0.0.1:{port}")
        count = 0
        while True:
            try:
                answer = wire.call("ModelInfer", ones().SerializeToString())
            except grpc.RpcError as error:
                if error.code() not in fine:
                    wrong.append((error.code(), error.details()))
                wire.channel.close()
                return count
            y = np.frombuffer(answer.raw_output_contents[0], np.float32)
            if not np.allclose(y, expected(1).ravel(), rtol=1e-4, atol=1e-4):
                wrong.append(answer)
            count += 1
            if count == 20:
                stop.set()

    with ThreadPoolExecutor(8) as pool:
        with Server([mlp], grpc=transport, grpc_port=0) as server:
            assert server.grpc_port is not None
            counts = [pool.submit(ask, server.grpc_port) for _ in range(8)]
            assert stop.wait(120)
        assert sum(count.result(120) for count in counts) >= 20
    assert not wrong


@pytest.mark.parametrize("transport", ["own", "grpcio"])
def test_draining_ends_streams(mlp: Path, transport: str, dial: Callable[[str], Any], ones: Any) -> None:
    """What was taken is answered; a client that keeps its stream open does not hold the server up."""
    answered, gone = threading.Semaphore(0), threading.Event()

    def bodies() -> Iterator[bytes]:
        for n in range(3):
            yield ones(id=str(n)).SerializeToString()
        gone.wait(120)

    def read(call: Any) -> tuple[list[str], Any, str]:
        found = []
        try:
            for each in call:
                found.append(Stream.FromString(each).infer_response.id)
                answered.release()
        except grpc.RpcError as error:
            return found, error.code(), error.details()
        raise AssertionError("the stream ended well")

    with ThreadPoolExecutor(1) as pool:
        with Server([mlp], grpc=transport, grpc_port=0, limits=RequestLimits(drain_s=60.0)) as server:
            wire = dial(f"127.0.0.1:{server.grpc_port}")
            reading = pool.submit(read, wire.stream()(bodies()))
            for _ in range(3):
                assert answered.acquire(timeout=300)
        assert reading.result(120) == (
            ["0", "1", "2"],
            Code.UNAVAILABLE,
            "the server is stopping; try again in a moment",
        )
        gone.set()
        wire.channel.close()


@pytest.mark.parametrize("transport", ["own", "grpcio"])
def test_ipv6(mlp: Path, transport: str, dial: Callable[[str], Any], ones: Any) -> None:
    with Server([mlp], host="::1", grpc=transport, grpc_port=0, rate=1e6) as server:
        wire = dial(f"[::1]:{server.grpc_port}")
        assert wire.call("ModelInfer", ones().SerializeToString()).model_name == "mlp"
        wire.channel.close()
