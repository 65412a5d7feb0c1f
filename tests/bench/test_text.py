"""Loads of generated text: each token is noted, and what is no streamed completion is a failure."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from ox.bench import Plan, Result, run
from ox.bench.event_stream import StreamReader
from ox.bench.table import show
from ox.errors import ArgumentError, ServeError

if TYPE_CHECKING:
    from ox.serve import Server

Load = Callable[..., Result]
MODELS = {"data": [{"id": "first"}, {"id": "second"}]}
USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 4}}


def event(document: Any) -> bytes:
    return f"data: {json.dumps(document)}\n\n".encode()


def token(text: str) -> bytes:
    return event({"choices": [{"index": 0, "text": text}]})


DONE = b"data: [DONE]\n\n"
WHOLE = [token("a"), b": a comment\n\n", token("b"), token(""), token("c"), event(USAGE), DONE]


def chunked(parts: list[bytes], status: int = 200) -> bytes:
    head = b"HTTP/1.1 %d X\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n" % status
    return head + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


@pytest.fixture
def completions(raw: Any) -> Callable[..., Any]:
    """A server whose texts are as it is told, and the first one, with which a load begins."""

    def serve(answer: bytes, first: bytes = chunked(WHOLE)) -> Any:
        async def behave(number: int, writer: asyncio.StreamWriter) -> None:
            writer.write(answer)

        return raw(behave, metadata=MODELS, probes=1, path=b"/v1/completions", first=first)

    return serve


def test_tokens_are_counted(here: Load, completions: Any) -> None:
    with completions(chunked(WHOLE)) as server:
        result = here(server.url, text=True, prompt_words=3, key="secret")
        (step,) = result.steps
        assert step.answered == server.asked > 0 and not step.failed
        bodies, heads = [json.loads(body) for body in server.bodies], server.heads
    assert result.model == "first" and result.sent == "7 tokens in, 4 out"
    assert step.text is not None and step.text.requests == step.answered
    assert step.text.prompt_tokens == 7 * step.answered and step.text.completion_tokens == 4 * step.answered
    assert step.text.first.count == step.answered and step.text.between.count == 2 * step.answered
    figures = step.to_json()
    assert figures["tokens_per_s"] == step.text.tokens / 0.3 and figures["completion_tokens"] == 4
    assert figures["first_token_ms"]["p50"] <= figures["latency_ms"]["max"]
    assert len({body["prompt"] for body in bodies}) == len(bodies)  # nothing comes from a prefix cache
    assert all(len(body["prompt"].split()) == 3 and body["max_tokens"] == 64 for body in bodies)
    assert all(b"authorization: Bearer secret\r\n" in head for head in heads)


@pytest.mark.parametrize("options", [{}, {"rates": (50.0,)}], ids=["closed", "open"])
def test_our_own_server(here: Load, decoder: Server, options: dict[str, Any]) -> None:
    (step,) = here(decoder.url, text=True, prompt_words=4, max_tokens=6, timeout=60.0, **options).steps
    assert step.answered and not step.failures.counts and step.text is not None
    assert step.text.completion_tokens == 6 * step.text.requests
    assert step.text.first.percentile(50) <= step.percentile(50)


def test_prompts_of_a_file_and_several_processes(decoder: Server, tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("one\n\ntwo\n")
    plan = Plan(concurrency=(2,), seconds=0.2, warmup=0.0, processes=2, text=True, max_tokens=3, timeout=60.0)
    result = run(decoder.url, plan, model="tiny", data=tmp_path / "prompts.txt")
    assert result.good and result.steps[0].text is not None and result.steps[0].text.requests > 0


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (chunked([token("a"), event(USAGE)]), "wrong: no end of the events"),
        (chunked([event(USAGE), DONE]), "wrong: no text"),
        (chunked([token("a"), event({"error": {"message": "out"}}), DONE]), "error: {'message': 'out'}"),
        (chunked([b"data: {\n\n", DONE]), "wrong: unreadable event"),
        (chunked([b"data: [1]\n\n", DONE]), "wrong: unreadable event"),
        (chunked([b'{"error": "full"}'], 503), "HTTP 503"),
        (chunked(WHOLE) + b"more", "wrong: not HTTP"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "wrong: not HTTP"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nabc\r\n", "wrong: not HTTP"),
        (b"SSH\r\n\r\n", "wrong: not HTTP"),
    ],
)
def test_what_is_no_text(here: Load, completions: Any, answer: bytes, kind: str) -> None:
    with completions(answer) as server:
        (step,) = here(server.url, text=True, seconds=0.1, timeout=30.0).steps
        assert set(step.failures.counts) == {kind} and step.failed == server.asked > 0 and not step.answered


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (chunked([b"no"], 400), "refuses the first request"),
        (chunked([b"the context is shorter"], 400), r"refuses the first request(.|\n)*--prompt-words 32"),
        (chunked([token("a"), DONE]), "is not a streamed completion"),
        (chunked([b"data: {\n\n"]), "is not a streamed completion"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", "is not a streamed completion"),
    ],
)
def test_the_first_text_must_be_one(here: Load, completions: Any, first: bytes, words: str) -> None:
    with completions(b"", first) as server, pytest.raises(ServeError, match=words):
        here(server.url, text=True)


def test_what_cannot_be_measured(here: Load, server: Server, decoder: Server, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    for url, data, words in (
        (decoder.url, tmp_path / "none.txt", "cannot be read"),
        (decoder.url, tmp_path / "empty.txt", "has no prompt"),
        ("grpc://127.0.0.1:1", None, "texts are measured over HTTP"),
    ):
        with pytest.raises(ArgumentError, match=words):
            here(url, text=True, data=data)
    with pytest.raises(ServeError, match="no model that generates text"):
        here(server.url, text=True)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_response_in_pieces(size: int) -> None:
    """However it is cut, each event comes once."""
    plain = b"".join(WHOLE)
    fixed = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(plain), plain)
    trailers = chunked(WHOLE).removesuffix(b"\r\n") + b"x: y\r\n\r\n"
    for whole in (chunked(WHOLE), fixed, trailers):
        reader, events = StreamReader(), list[bytes]()
        for start in range(0, len(whole), size):
            assert not reader.ended
            events += reader.feed(whole[start : start + size])
        assert reader.ended and events == StreamReader.events(plain) and len(events) == 6


def test_table(here: Load, completions: Any) -> None:
    with completions(chunked(WHOLE)) as server:
        result = here(server.url, text=True, concurrency=(1, 2))
    out = io.StringIO()
    show(result, Console(file=out, width=20))
    lines = out.getvalue().splitlines()
    (header,) = [line for line in lines if "tokens/s" in line]
    assert all(name in header for name in ("requests/s", "first token p50", "between p99", "whole p99", "failed"))
    assert sum(len(line.split()) == 11 for line in lines) == 2 and "…" not in out.getvalue()
