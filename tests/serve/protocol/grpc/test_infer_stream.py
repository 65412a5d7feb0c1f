"""ModelStreamInfer over both transports: many requests in flight, answers in order, errors that do not end it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest
from manual_clock import ManualClock
from waiting import give_way

from ox.clock import SYSTEM
from ox.errors import ServeError
from ox.generation import SamplingParams
from ox.serve.access.bucket import Bucket
from ox.serve.access.client import Client
from ox.serve.generation.request import TokenEvent, Usage
from ox.serve.protocol.grpc import infer_stream
from ox.serve.protocol.grpc.infer_stream import InferStream, StreamRequest
from ox.serve.protocol.grpc.proto import message
from ox.serve.protocol.grpc.stream_text import StreamText
from ox.serve.protocol.grpc.text_tensors import TextRequest
from ox.serve.protocol.text.generate import GenerateCall
from ox.serve.protocol.text.sampling import TextOptions
from ox.serve.protocol.text.text_service import TextService, count_errors
from ox.serve.telemetry.stages import Stages

Answer = message("inference.ModelStreamInferResponse")


def answers(call: Any) -> list[Any]:
    return [Answer.FromString(each) for each in call]


def test_answers_come_in_order(wire: Any, ones: Any, expected: Any) -> None:
    rows = [1, 5, 50, 2, 1, 50, 4] * 20
    bodies = [ones(rows=count, id=str(n)).SerializeToString() for n, count in enumerate(rows)]
    got = answers(wire.stream()(iter(bodies), timeout=300))
    assert [each.infer_response.id for each in got] == [str(n) for n in range(len(rows))]
    assert {each.error_message for each in got} == {""}
    for count, each in zip(rows, got, strict=True):
        y = np.frombuffer(each.infer_response.raw_output_contents[0], np.float32).reshape(count, 10)
        np.testing.assert_allclose(y, expected(count), rtol=1e-4, atol=1e-4)


def test_errors_are_answered_in_their_turn(wire: Any, ones: Any) -> None:
    good, bad, unknown = ones(id="good"), ones(id="bad", raw_input_contents=[]), ones(model="nope", id="unknown")
    bodies = [each.SerializeToString() for each in (good, bad, good, unknown)] + [b"\xff"]
    got = answers(wire.stream()(iter(bodies), timeout=300))
    assert [each.infer_response.id for each in got] == ["good", "bad", "good", "unknown", ""]
    assert [bool(each.infer_response.raw_output_contents) for each in got] == [True, False, True, False, False]
    texts = [each.error_message for each in got]
    assert texts[0] == texts[2] == "" and "input 'x' has no data" in texts[1]
    assert "there is no model 'nope'" in texts[3] and "not a valid ModelInferRequest" in texts[4]


def test_a_client_that_wants_status_codes(wire: Any, ones: Any) -> None:
    bodies = [ones(id="1").SerializeToString(), ones(model="nope").SerializeToString(), ones().SerializeToString()]
    call = wire.stream()(iter(bodies), timeout=300, metadata=[("triton_grpc_error", "true")])
    got = []
    with pytest.raises(grpc.RpcError) as caught:
        got.extend(Answer.FromString(each) for each in call)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND and "'nope'" in caught.value.details()
    assert len(got) <= 1  # grpcio's client may lose what came just before an error


def test_an_empty_stream(wire: Any) -> None:
    assert answers(wire.stream()(iter([]), timeout=300)) == []


def test_the_last_answer_is_marked_for_whoever_asks(wire: Any, ones: Any) -> None:
    asked = {"triton_enable_empty_final_response": {"bool_param": True}}
    bodies = [ones(parameters=asked).SerializeToString(), ones().SerializeToString()]
    first, second = answers(wire.stream()(iter(bodies), timeout=300))
    assert first.infer_response.parameters["triton_final_response"].bool_param
    assert first.infer_response.raw_output_contents and not second.infer_response.parameters


def test_the_model_is_not_told_of_that(wire: Any, ones: Any, held: Any) -> None:
    asked = {"triton_enable_empty_final_response": {"bool_param": True}, "mine": {"int64_param": 1}}
    call = wire.stream()(iter([ones(parameters=asked).SerializeToString()]), timeout=300)
    held.wait(1)
    assert dict(held.jobs[0].request.parameters) == {"mine": 1}
    held.release()
    assert answers(call)[0].infer_response.parameters["triton_final_response"].bool_param


def test_answers_before_the_client_is_done(wire: Any, ones: Any) -> None:
    """A conversation: each request waits for the answer to the one before."""
    turn = threading.Semaphore(1)

    def bodies() -> Iterator[bytes]:
        for n in range(10):
            turn.acquire()
            yield ones(id=str(n)).SerializeToString()

    got = []
    for each in wire.stream()(bodies(), timeout=300):
        got.append(Answer.FromString(each).infer_response.id)
        turn.release()
    assert got == [str(n) for n in range(10)]


def test_a_stream_that_is_cancelled_abandons_its_jobs(grpc_server: Any, wire: Any, ones: Any, held: Any) -> None:
    hold = threading.Event()

    def bodies() -> Iterator[bytes]:
        for _ in range(3):
            yield ones().SerializeToString()
        hold.wait(120)

    call = wire.stream()(bodies())
    held.wait(3)
    call.cancel()
    hold.set()
    assert held.abandoned(3)


def test_a_stream_may_have_so_many_in_flight(grpc_server: Any, wire: Any, ones: Any, held: Any, expected: Any) -> None:
    most = grpc_server.limits.pipeline
    bodies = [ones(id=str(n)).SerializeToString() for n in range(3 * most)]
    call = wire.stream()(iter(bodies), timeout=300)
    held.wait(most)
    for _ in range(20):  # what else was sent has arrived by then
        assert wire.call("ServerLive").live
    assert len(held.jobs) == most
    held.release()
    assert [each.infer_response.id for each in answers(call)] == [str(n) for n in range(3 * most)]


def test_a_text_that_comes_while_the_client_reads_slowly_is_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Text:
        """In place of a text that runs."""

        def __init__(self, stream: InferStream, *_: Any) -> None:
            self.pauses: list[bool] = []
            self.job = SimpleNamespace(set_paused=self.pauses.append)
            stream.texts.add(self)  # type: ignore[arg-type]
            texts.append(self)

    texts: list[Text] = []
    monkeypatch.setattr(infer_stream, "StreamText", Text)
    rpc: Any = SimpleNamespace(metadata={}, pause=lambda: None, resume=lambda: None)
    stream = InferStream(rpc, 10)
    nothing: Any = None

    def start() -> None:
        placeholder = StreamRequest(stream)
        stream.add(placeholder)
        stream.start_text(placeholder, nothing, nothing, 0.0)

    start()
    rpc.on_flow(True)
    start()
    rpc.on_flow(False)
    start()
    assert [text.pauses for text in texts] == [[True, False], [True, False], []]


@pytest.mark.parametrize("fails", [True, False])
def test_the_tokens_of_a_text_are_counted_once(fails: bool) -> None:
    """Also where its error ends the call, which cancels the texts of the stream."""
    counts = []

    class Counting(Client):
        __slots__ = ()

        def settle(self, reserved: float, used: int) -> None:
            counts.append(used)
            super().settle(reserved, used)

    bucket = Bucket(1.0, 100.0, SYSTEM.now())
    client, submitted = Counting("alice", None, bucket), list[Any]()

    def submit(request: Any, on_event: Any, on_error: Any, loop: Any) -> Any:
        submitted.append((on_event, on_error))
        return SimpleNamespace(cancel=lambda: None)

    stages = SimpleNamespace(failed=lambda *_: None, text=lambda *_: None)
    model: Any = SimpleNamespace(
        name="m", version="1", engine=SimpleNamespace(submit=submit), stages=stages, clock=SYSTEM
    )
    sent: list[Any] = []
    rpc: Any = SimpleNamespace(
        metadata={b"triton_grpc_error": b"true"}, fail=lambda *_: sent.append("failed"), send=sent.append,
        finish=lambda: None,
    )  # fmt: skip

    async def run() -> None:
        stream = InferStream(rpc, 10)
        options = TextOptions(SamplingParams(), 1, 40)
        for _ in range(2):
            request = TextRequest(GenerateCall(model, "1", [1, 2, 3], options, True), False)
            StreamText(stream, request, client, 0.0)
        on_event, on_error = submitted[0]
        on_event(TokenEvent(5, "a"))
        if fails:
            on_error(ServeError("the model gives no scores", status=500))
            assert sent[-1] == "failed" and counts == [4, 3] and not stream.texts  # the other one is cancelled
        else:
            on_event(TokenEvent(6, "b", finish_reason="stop", usage=Usage(3, 0, 2)))
            assert counts == [5] and len(stream.texts) == 1

    asyncio.run(run())


def test_what_a_client_that_has_left_asked_is_not_read() -> None:
    """Over gRPC and over HTTP: it waits for a thread, and others wait behind it."""

    async def run() -> None:
        loop, held = asyncio.get_running_loop(), threading.Event()
        with ThreadPoolExecutor(1) as threads:
            loop.set_default_executor(threads)
            first = loop.run_in_executor(None, held.wait, 60)
            rpc: Any = SimpleNamespace(metadata={}, pause=lambda: None)
            stream = InferStream(rpc, 10)
            stream.add(placeholder := StreamRequest(stream))
            nothing: Any = None
            over_grpc = stream.read_text(placeholder, lambda: read.append("gRPC") or nothing, nothing, 0.0, stages)
            exchange: Any = SimpleNamespace(on_cancel=None, received_at=0.0, headers={})
            count_errors(exchange, stages)
            service: Any = TextService(nothing, nothing, nothing)
            over_http = loop.create_task(service.in_thread(exchange, lambda: read.append("HTTP")))
            await give_way()
            rpc.on_cancel()
            exchange.on_cancel()
            held.set()
            await asyncio.gather(first, over_grpc, over_http)

    read: list[str] = []
    stages = Stages(ManualClock())
    asyncio.run(run())
    assert read == [] and stages.failures["CANCELED"] == 2
