"""Requests for generated text: OpenAI's completions, streamed."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import orjson

from ox.bench.address import Address
from ox.bench.answer import OK, Reply
from ox.bench.event_stream import StreamReader, usage_of
from ox.bench.inputs import VARIANTS
from ox.bench.queries import MODEL_HINT, QueryClient
from ox.errors import ArgumentError, ServeError, first_line

# The first word of a random prompt. Each request has another number there, so that no prefix cache flatters a server.
MARK = b"0000000000"
WORDS = (
    "time year people way day man thing woman life child world school state family student group country "
    "problem hand part place case week company system program question work government number night point "
    "home water room mother area money story fact month lot right study book"
)


class CompletionValidator:
    """In place of `ResponseValidator`: texts differ, so that only their form is looked at.

    Args:
        part, parts: of the processes that send, which one this is.
    """

    known: Sequence[bytes] = ()

    def __init__(self, part: int = 0, parts: int = 1) -> None:
        self._marks = _marks(part, parts)

    def marked(self, request: bytes) -> bytes:
        """A request with a prompt that was not sent before."""
        return request.replace(MARK, next(self._marks), 1)

    def problem(self, place: int, reply: Reply) -> str | None:
        return reply.failure if reply.failure is not None else f"HTTP {reply.status}"


def prompts(words: int, path: Path | None) -> list[str]:
    """Random words, or the lines of a file.

    Raises:
        ArgumentError: the file cannot be read, or has no line.
    """
    if path is None:
        random = np.random.default_rng(0)
        return [" ".join([MARK.decode(), *random.choice(WORDS.split(), max(1, words - 1))]) for _ in range(VARIANTS)]
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise ArgumentError(f"{path} cannot be read", expected="prompts, one per line", got=first_line(error)) from None
    if not lines:
        raise ArgumentError(f"{path} has no prompt", expected="one per line", got="an empty file")
    return lines


def build(address: Address, model: str, prompt: str, max_tokens: int) -> bytes:
    """A whole HTTP request. The text has all the tokens that it may have, also where an end token is the likeliest."""
    document = {
        "model": model, "prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True, "temperature": 0,
        "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    body = orjson.dumps(document)
    lines = [f"POST {address.root}/v1/completions HTTP/1.1", f"host: {address.authority}"]
    lines += ["content-type: application/json", f"content-length: {len(body)}"]
    if address.key is not None:
        lines.append(f"authorization: Bearer {address.key}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def find_model(queries: QueryClient, name: str | None) -> tuple[str, list[str]]:
    """The model of that name, or the first one that generates text; and the names of all, if they were listed.

    Raises:
        ServeError: the server is not there, or lists no model.
    """
    if name is not None:
        return name, []
    document = queries.get("/v1/models", "the list of models")
    try:
        names = [str(each["id"]) for each in document["data"]]
    except (KeyError, TypeError):
        raise ServeError("the server's list of models cannot be read", hint=MODEL_HINT) from None
    if not names:
        raise ServeError("the server has no model that generates text", where=queries.address.url, hint=MODEL_HINT)
    return names[0], names


def probe(queries: QueryClient, model: str, request: bytes) -> str:
    """Sends one request before the load, and says what it took.

    Raises:
        ServeError: it is refused, or answered by something else than a streamed completion.
    """
    reply = queries.infer(CompletionValidator().marked(request))
    if reply.status != OK:
        got = f"HTTP {reply.status}: {reply.body[:300].decode('utf-8', 'replace')}"
        hint = "--prompt-words 32 --max-tokens 32" if b"context" in reply.body else None
        raise ServeError(f"{model} refuses the first request", where=queries.address.url, got=got, hint=hint)
    events = StreamReader.events(reply.body)
    try:
        usage = usage_of([orjson.loads(event) for event in events if event != b"[DONE]"])
    except ValueError as error:
        usage, events = None, [str(error).encode()]
    if usage is None:
        got = (events or [reply.body])[0][:200].decode("utf-8", "replace")
        expected = "server-sent events, the last one with usage"
        raise ServeError(f"{model}'s first response is not a streamed completion", expected=expected, got=got)
    return f"{usage[0]:,} tokens in, {usage[1]:,} out"


def _marks(part: int, parts: int) -> Iterator[bytes]:
    number = secrets.randbelow(10 ** len(MARK))  # no step, and no later load, has the prompts of another
    while True:
        yield b"%0*d" % (len(MARK), (number - number % parts + part) % 10 ** len(MARK))
        number += parts
