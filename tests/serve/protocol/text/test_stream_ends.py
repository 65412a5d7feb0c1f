"""How streams of each dialect end early: by an error, which is an event of the dialect, or because the client left."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any

import pytest
from rows import rows
from waiting import wait_until

from ox.errors import ServeError
from ox.serve import Server
from ox.serve.generation import generation_errors as errors
from ox.serve.generation.engine import GenerationEngine
from ox.serve.protocol.text.event_stream import EventStream
from ox.serve.protocol.text.text_job import TextJob

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "a twice"}], "stream": True}
PROMPT = "a <|twice|>"
Error = dict[str, Any]


def sse(stream: bytes) -> list[tuple[str | None, Any]]:
    """The names and the data of server-sent events."""
    assert stream.endswith(b"\n\n")
    events = []
    for text in stream[:-2].split(b"\n\n"):
        *names, data = text.split(b"\n")
        events.append((names[0].decode().removeprefix("event: ") if names else None, json.loads(data[6:])))
    return events


def openai_error(stream: bytes) -> str:
    """The last event has the error; [DONE] would say that the answer is whole."""
    (_, first), *_, (name, last) = sse(stream)
    assert "choices" in first and name is None and set(last) == {"error"}
    assert set(last["error"]) == {"message", "type", "param", "code"} and last["error"]["type"] == "server_error"
    return str(last["error"]["message"])


def response_error(stream: bytes) -> str:
    (first, _), *_, (failed, response), (name, last) = sse(stream)
    response = response["response"]
    assert (first, failed, name) == ("response.created", "response.failed", "error") and response["status"] == "failed"
    assert response["error"] == {"code": "server_error", "message": last["message"]}
    assert set(last) == {"type", "code", "message", "param", "sequence_number"}
    return str(last["message"])


def anthropic_error(stream: bytes) -> str:
    (first, _), *_, (name, last) = sse(stream)
    assert (first, name) == ("message_start", "error") and set(last) == {"type", "error"} and last["type"] == "error"
    assert last["error"]["type"] in ("api_error", "timeout_error", "overloaded_error")
    return str(last["error"]["message"])


def triton_error(stream: bytes) -> str:
    (_, first), *_, (name, last) = sse(stream)
    assert "text_output" in first and name is None and set(last) == {"error"}
    return str(last["error"])


def ollama_error(stream: bytes) -> str:
    assert stream.endswith(b"\n")
    first, *_, last = map(json.loads, stream.splitlines())
    assert first["done"] is False and set(last) == {"error"}
    return str(last["error"])


DIALECTS: dict[str, tuple[dict[str, Any], Callable[[bytes], str]]] = {
    "/v1/completions": ({"model": "tiny", "prompt": PROMPT, "stream": True}, openai_error),
    "/v1/chat/completions": (CHAT, openai_error),
    "/v1/responses": ({"model": "tiny", "input": "a twice", "stream": True}, response_error),
    "/v1/messages": ({**CHAT, "max_tokens": 50}, anthropic_error),
    "/api/chat": (CHAT, ollama_error),
    "/api/generate": ({"model": "tiny", "prompt": PROMPT, "raw": True}, ollama_error),
    "/v2/models/tiny/generate_stream": ({"text_input": PROMPT}, triton_error),
}


def engine_of(server: Server) -> GenerationEngine:
    (engine,) = [model.generation for model in server.models if model.name == "tiny"]
    assert engine is not None
    return engine


def idle(server: Server) -> bool:
    stats = engine_of(server).stats()
    return not stats["running"] and not stats["waiting"]


def failing(patch: pytest.MonkeyPatch, owner: type, method: str, fail: Callable[..., object]) -> None:
    """The fourth call of a method has `fail` called in its place, once."""
    calls, real = [0], getattr(owner, method)

    def counted(self: Any, *arguments: Any) -> Any:
        calls[0] += 1
        return (fail if calls[0] == 4 else real)(self, *arguments)

    patch.setattr(owner, method, counted)


def end_all(why: Callable[[], ServeError]) -> Callable[..., object]:
    """Ends the texts of an engine with an error."""

    def end(engine: Any) -> bool:
        for text in list(engine._scheduler.texts):
            engine._end(text, why())
        return True

    return end


def defect(*_: Any) -> None:
    raise RuntimeError("a defect")


REASONS: dict[str, tuple[type, str, Callable[..., object], str]] = {
    "deadline": (GenerationEngine, "_step", end_all(errors.late), "the text was not complete in time"),
    "unloaded": (GenerationEngine, "_step", end_all(errors.unloaded), "the model has just been unloaded"),
    "engine": (GenerationEngine, "_step", defect, "the generation engine failed; got a defect"),
    "writer": (EventStream, "send", defect, "the server failed on this request"),
}


@rows("reason", REASONS)
@rows("target", DIALECTS)
def test_an_error_in_the_middle(scripted: Server, target: str, reason: str) -> None:
    """The dialect's own event is the last one, the response is complete, and the request counts as failed."""
    body, message_of = DIALECTS[target]
    owner, method, fail, words = REASONS[reason]
    (stages,) = [model.stages for model in scripted.models if model.name == "tiny"]
    before = sum(stages.failures.values())
    with pytest.MonkeyPatch.context() as patch:
        failing(patch, owner, method, fail)
        connection = HTTPConnection(scripted.host, scripted.port, timeout=60)
        connection.request("POST", target, json.dumps(body))
        response = connection.getresponse()
        stream = response.read()
        assert response.status == 200 and message_of(stream).startswith(words), stream
        connection.request("GET", "/v2/health/live")  # on the same connection
        assert connection.getresponse().read() == b'{"live":true}'
        connection.close()
        wait_until(lambda: idle(scripted))
    assert sum(stages.failures.values()) == before + 1


@rows("target", DIALECTS)
def test_a_client_that_leaves(scripted: Server, hold_steps: Any, target: str) -> None:
    steps = hold_steps(TextJob, "abandon")
    (stages,) = [model.stages for model in scripted.models if model.name == "tiny"]
    before, body = stages.failures["CANCELED"], json.dumps(DIALECTS[target][0]).encode()
    client = socket.create_connection((scripted.host, scripted.port), timeout=60)
    client.sendall(b"POST %b HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % (target.encode(), len(body)) + body)
    assert client.recv(100)
    client.close()
    wait_until(lambda: idle(scripted))
    assert 0 < len(steps) < 10  # it did not make the whole text
    assert stages.failures["CANCELED"] == before + 1
