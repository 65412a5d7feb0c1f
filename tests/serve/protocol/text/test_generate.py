"""Triton's extension for texts: over HTTP, and as several answers of ModelStreamInfer, with tritonclient."""

from __future__ import annotations

import http.client
import json
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import rows
from waiting import wait_until

from ox.errors import ServeError
from ox.serve import ModelConfig, RequestLimits, Server
from ox.serve.access.client import Client
from ox.serve.generation.constraint import Constraints
from ox.serve.protocol.grpc.infer_stream import InferStreams
from ox.serve.protocol.text.text_job import TextJob
from ox.serve.protocol.text.text_model import TextModel

pytest.importorskip("tokenizers", reason="the extra text is not installed")
pytest.importorskip("jinja2", reason="the extra text is not installed")
grpc = pytest.importorskip("tritonclient.grpc", reason="gRPC's own client is not installed")

SAMPLING = {"max_tokens": 10, "temperature": 0.0, "ignore_eos": True}
ASK: dict[str, Any] = {"text_input": "the cat", "parameters": SAMPLING}


@pytest.fixture(scope="module")
def decoder(shared_folder: Callable[..., Path]) -> Path:
    from tiny_decoder import write_decoder

    return shared_folder("tiny_decoder", write_decoder) / "tiny"


@pytest.fixture(scope="module")
def server(decoder: Path, mlp: Path) -> Iterator[Server]:
    with Server([decoder, mlp], options=ModelConfig(threads=1, instances=1)) as running:
        yield running


@pytest.fixture
def text(client: Any) -> str:
    """What the model answers."""
    status, _, reply = client.ask("POST", "/v2/models/tiny/generate", json.dumps({**ASK, "id": "7"}).encode())
    answer = json.loads(reply)
    assert status == 200 and {**answer, "text_output": ""} == {
        "id": "7", "model_name": "tiny", "model_version": "1", "text_output": "",
    }  # fmt: skip
    assert answer["text_output"]
    return str(answer["text_output"])


def events(server: Server) -> list[bytes]:
    """Those of a stream, and what follows the last one."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", "/v2/models/tiny/versions/1/generate_stream", json.dumps(ASK))
    response = connection.getresponse()
    assert response.getheader("content-type") == "text/event-stream; charset=utf-8"
    data = response.read()
    connection.close()
    return data.split(b"\n\n")


def test_a_stream(server: Server, text: str) -> None:
    *pieces, rest = events(server)
    documents = [json.loads(piece.removeprefix(b"data: ")) for piece in pieces]
    assert rest == b"" and len(documents) > 1 and all(each["model_name"] == "tiny" for each in documents)
    assert "".join(each["text_output"] for each in documents) == text


@rows(
    ("body", "status", "words"),
    [({}, 400, "text_input"), ({"text_input": 5}, 400, "text_input"),
     ({**ASK, "top_k": -5}, 400, "top_k"),
     ({**ASK, "max_tokens": 5}, 400, "'max_tokens' has two values in the request; expected one; got 5 and 10"),
     ({**ASK, "sampling_parameters": '{"max_tokens": 5}'}, 400, "'max_tokens' has two values"),
     ({"text_input": "a", "parameters": {"temperature": -1}}, 400, "temperature"),
     ({"text_input": "a", "parameters": {"n": 2}}, 400, "one text"),
     ({"text_input": "a", "sampling_parameters": "{"}, 400, "not JSON"),
     ({"text_input": "a" * 9000}, 400, "context"),
     ({"text_input": "a", "exclude_input_in_output": False}, 400, "exclude")],
)  # fmt: skip
def test_wrong_requests(client: Any, body: dict[str, Any], status: int, words: str) -> None:
    for name in ("generate", "generate_stream"):
        got, _, reply = client.ask("POST", f"/v2/models/tiny/{name}", json.dumps(body).encode())
        assert got == status and words in json.loads(reply)["error"], reply
    got, _, reply = client.ask("POST", "/v2/models/nope/generate", json.dumps(ASK).encode())
    assert got == 404 and isinstance(json.loads(reply)["error"], str)


class Streaming:
    """A stream of tritonclient."""

    def __init__(self, server: Server) -> None:
        self.client = grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        self.answers: queue.Queue[Any] = queue.Queue()
        self.client.start_stream(lambda result, error: self.answers.put((result, error)))

    def ask(self, prompt: bytes, stream: bool, **options: Any) -> None:
        inputs = [grpc.InferInput("text_input", [1], "BYTES"), grpc.InferInput("stream", [1], "BOOL"),
                  grpc.InferInput("sampling_parameters", [1], "BYTES")]  # fmt: skip
        inputs[0].set_data_from_numpy(np.array([prompt], object))
        inputs[1].set_data_from_numpy(np.array([stream]))
        inputs[2].set_data_from_numpy(np.array([json.dumps({"stop": ["zzz"]}).encode()], object))
        self.client.async_stream_infer("tiny", inputs, parameters=SAMPLING, **options)

    def next(self) -> Any:
        result, error = self.answers.get(timeout=60)
        assert error is None, error
        return result

    def error(self) -> str:
        return str(self.answers.get(timeout=60)[1])


@pytest.fixture
def streaming(server: Server) -> Iterator[Streaming]:
    stream = Streaming(server)
    yield stream
    stream.client.stop_stream(cancel_requests=True)
    stream.client.close()


def test_answers_over_grpc(streaming: Streaming, text: str) -> None:
    streaming.ask(b"the cat", True, request_id="7", enable_empty_final_response=True)
    parts = []
    while True:
        answer = streaming.next()
        response = answer.get_response()
        assert (response.id, response.model_name) == ("7", "tiny")
        if response.parameters["triton_final_response"].bool_param:
            break
        parts.append(answer.as_numpy("text_output")[0].decode())
    assert not response.outputs and len(parts) > 1 and "".join(parts) == text
    streaming.ask(b"the cat", False, request_id="8")
    answer = streaming.next()
    assert answer.as_numpy("text_output")[0].decode() == text and answer.get_response().id == "8"


def test_wrong_requests_over_grpc(streaming: Streaming, text: str) -> None:
    inputs = [grpc.InferInput("text_input", [1], "BYTES")]
    inputs[0].set_data_from_numpy(np.array([b"\xff"], object))
    streaming.client.async_stream_infer("tiny", inputs)
    assert "not UTF-8" in streaming.error()
    inputs[0].set_data_from_numpy(np.array([b"a"], object))
    streaming.client.async_stream_infer("tiny", inputs, parameters={"temperature": -1.0})
    assert "'temperature' is wrong" in streaming.error()
    streaming.client.async_stream_infer("tiny", [grpc.InferInput("text_input", [2], "BYTES")])
    assert "BYTES [1]" in streaming.error()
    other = grpc.InferInput("x", [1], "FP32")
    other.set_data_from_numpy(np.zeros(1, np.float32))
    streaming.client.async_stream_infer("tiny", [other])
    assert "no input 'x'" in streaming.error()
    with pytest.raises(Exception, match="answers with several messages; try ModelStreamInfer"):
        streaming.client.infer("tiny", inputs)
    streaming.ask(b"the cat", False)
    assert streaming.next().as_numpy("text_output")[0].decode() == text


def test_unknown_parameters_over_grpc(
    streaming: Streaming, server: Server, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = [grpc.InferInput("text_input", [1], "BYTES")]
    inputs[0].set_data_from_numpy(np.array([b"the cat"], object))
    stages = server.service.repository.find("tiny").stages
    before = stages.unknown_parameters
    streaming.client.async_stream_infer("tiny", inputs, parameters={**SAMPLING, "foo": 1})
    assert streaming.next().as_numpy("text_output")[0].decode() == text and stages.unknown_parameters == before + 1
    monkeypatch.setattr(server.service.repository, "strict", True)
    streaming.client.async_stream_infer("tiny", inputs, parameters={**SAMPLING, "foo": 1})
    assert "Unknown parameter: 'foo'" in streaming.error() and stages.unknown_parameters == before + 1


def test_parameters_beside_the_text(client: Any, text: str) -> None:
    """As clients of TensorRT-LLM's backend send them; one in both places has the same value."""
    status, _, reply = client.ask("POST", "/v2/models/tiny/generate", json.dumps({
        "text_input": "the cat", **SAMPLING, "parameters": {"max_tokens": SAMPLING["max_tokens"]},
    }).encode())  # fmt: skip
    assert status == 200 and json.loads(reply)["text_output"] == text


def failures(server: Server, name: str = "tiny") -> dict[str, int]:
    return dict(server.service.repository.find(name).stages.failures)


CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "a"}]}


@rows(
    ("path", "body"),
    [("/v1/completions", {"model": "tiny", "prompt": ""}),
     ("/v1/completions", {"model": "tiny", "prompt": "a" * 9000}),  # read in a thread
     ("/v1/completions", {"model": "tiny", "prompt": "a", "guided_regex": "(((("}),  # compiled in a thread
     ("/v1/chat/completions", {**CHAT, "temperature": 9}),
     ("/v1/chat/completions", {**CHAT, "messages": []}),
     ("/v1/chat/completions", {**CHAT, "max_tokens": 10**6}),
     ("/v2/models/tiny/generate", {"text_input": 5}),
     ("/v2/models/tiny/generate", [1]),
     ("/v2/models/tiny/generate_stream", {"text_input": "a" * 9000})],
)  # fmt: skip
def test_refused_requests_count_as_failures(server: Server, client: Any, path: str, body: Any) -> None:
    before = failures(server)
    assert client.ask("POST", path, json.dumps(body).encode())[0] == 400
    assert failures(server) == before | {"OTHER": before["OTHER"] + 1}


def test_a_client_over_its_rate_counts_as_rejected(
    server: Server, client: Any, streaming: Streaming, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> float:
        raise ServeError("too many tokens", status=429)

    monkeypatch.setattr(Client, "reserve", refuse)
    before = failures(server)
    assert client.ask("POST", "/v2/models/tiny/generate", json.dumps(ASK).encode())[0] == 429
    streaming.ask(b"the cat", False)
    assert "too many tokens" in streaming.error()
    assert failures(server) == before | {"REJECTED": before["REJECTED"] + 2}


def test_refused_requests_over_grpc_count_as_failures(server: Server, streaming: Streaming) -> None:
    before = failures(server)
    for prompt in (b"\xff", b"the cat " * 2000):  # the second one is read in a thread
        streaming.ask(prompt, False)
        assert streaming.error()
    inputs = [grpc.InferInput("text_input", [1], "BYTES")]
    inputs[0].set_data_from_numpy(np.array([b"a"], object))
    with pytest.raises(Exception, match="ModelStreamInfer"):
        streaming.client.infer("tiny", inputs)
    grown = {reason: count - before[reason] for reason, count in failures(server).items() if count != before[reason]}
    assert grown == {"OTHER": 2, "BACKEND": 1}


def test_a_client_that_leaves(server: Server, hold_steps: Any) -> None:
    (model,) = [each for each in server.models if each.name == "tiny"]
    engine = model.generation
    assert engine is not None
    stream = Streaming(server)
    steps = hold_steps(TextJob, "abandon")
    stream.ask(b"the", True)
    stream.next()
    stream.client.stop_stream(cancel_requests=True)
    stream.client.close()
    wait_until(lambda: not engine.stats()["running"])
    assert len(steps) < 10


class Readers:
    """The threads in which prompts are tokenised and forms compiled; `held` keeps these there."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.encoding: list[threading.Thread] = []
        self.compiling: list[threading.Thread] = []
        self.begun, self.held = threading.Semaphore(0), threading.Event()
        self.held.set()
        encode, matcher = TextModel.encode, Constraints.matcher

        def watched(model: TextModel, text: str, special: bool = True) -> list[int]:
            self.encoding.append(threading.current_thread())
            return encode(model, text, special)

        def held(constraints: Constraints, constraint: Any) -> Any:
            self.compiling.append(threading.current_thread())
            self.begun.release()
            assert self.held.wait(60)
            return matcher(constraints, constraint)

        patch.setattr(TextModel, "encode", watched)
        patch.setattr(Constraints, "matcher", held)


def ask_with_form(client: Any, sampling: bytes = b'{"guided_choice": "yes"}') -> None:
    inputs = [grpc.InferInput("text_input", [1], "BYTES"), grpc.InferInput("sampling_parameters", [1], "BYTES")]
    for each, data in zip(inputs, (b"the cat", sampling), strict=True):
        each.set_data_from_numpy(np.array([data], object))
    client.async_stream_infer("tiny", inputs)


def test_what_takes_long_is_read_in_a_thread(
    server: Server, streaming: Streaming, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = Readers(monkeypatch)
    streaming.ask(b"the cat", False)
    assert streaming.next().as_numpy("text_output")[0].decode() == text
    streaming.ask(b"the cat " * 2000, False)
    assert "longer than the model's context" in streaming.error()
    loop_thread = readers.encoding[0]
    assert len(readers.encoding) == 2 and readers.encoding[1] is not loop_thread and not readers.compiling
    readers.held.clear()
    ask_with_form(streaming.client, rb'{"guided\u005fchoice": "yes"}')  # however it is written
    assert readers.begun.acquire(timeout=60)
    assert streaming.client.is_server_live()  # the event loop is free meanwhile
    readers.held.set()
    assert streaming.next().as_numpy("text_output")[0] == b"yes"
    assert readers.compiling[0] is not loop_thread  # later ones copy what was compiled


def test_texts_that_wait_to_be_read_have_a_limit(decoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long one is kept until a thread has read it, also where its client has left."""
    long, held, begun, encode = b"the cat " * 5000, threading.Event(), threading.Semaphore(0), TextModel.encode

    def slow(*given: Any) -> list[int]:
        begun.release()
        assert held.wait(60)
        return encode(*given)

    asked, take, known = threading.Semaphore(0), InferStreams._take, set[InferStreams]()

    def counted(streams: InferStreams, size: int) -> None:
        known.add(streams)
        if size > 0:
            asked.release()
        take(streams, size)

    monkeypatch.setattr(TextModel, "encode", slow)
    monkeypatch.setattr(InferStreams, "_take", counted)
    limits = RequestLimits(body=60_000, buffered=100_000)
    with Server([decoder], options=ModelConfig(threads=1), limits=limits) as server:
        leaving, staying = Streaming(server), Streaming(server)
        for each in (leaving, staying):
            each.ask(long, False)
            assert begun.acquire(timeout=60)
        leaving.client.stop_stream(cancel_requests=True)
        staying.ask(long, False)
        assert all(asked.acquire(timeout=60) for _ in range(3))
        held.set()
        errors = [staying.error(), staying.error()]
        assert "longer than the model's context" in errors[0]
        assert "buffers are full; expected at most 100000 bytes of texts" in errors[1]
        (streams,) = known
        for _ in range(4):
            wait_until(lambda: streams._unread_bytes == 0)
            staying.ask(long, False)
            assert "longer than the model's context" in staying.error()
        for each in (leaving, staying):
            each.client.close()


def test_a_client_that_leaves_while_its_form_is_compiled(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    (model,) = [each for each in server.models if each.name == "tiny"]
    assert model.generation is not None
    before = model.generation.stats()["requests"]
    readers, stream = Readers(monkeypatch), Streaming(server)
    readers.held.clear()
    ask_with_form(stream.client)
    assert readers.begun.acquire(timeout=60)
    stream.client.stop_stream(cancel_requests=True)
    stream.client.close()
    readers.held.set()
    other = Streaming(server)
    other.ask(b"the cat", False)
    other.next()
    other.client.stop_stream()
    other.client.close()
    assert model.generation.stats()["requests"] == before + 1  # only that of the other


def test_metadata(server: Server, client: Any) -> None:
    metadata = json.loads(client.ask("GET", "/v2/models/tiny")[2])
    assert [tensor["name"] for tensor in metadata["outputs"]] == ["text_output"]
    config = json.loads(client.ask("GET", "/v2/models/tiny/config")[2])
    assert config["model_transaction_policy"] == {"decoupled": True}
    paths = json.loads(client.ask("GET", "/openapi.json")[2])["paths"]
    assert "/v2/models/{model}/generate_stream" in paths and "/v1/chat/completions" in paths
    assert "/v2/models/mlp/versions/1/infer" in paths and "/v2/models/tiny/versions/1/infer" not in paths
