"""The texts that answer one request of a client, from their submission to their ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from ox.errors import OxError, ServeError
from ox.serve.generation.handle import GenerationHandle
from ox.serve.generation.request import GenerationRequest, TokenEvent
from ox.serve.protocol.text.text_model import TextModel

log = logging.getLogger("ox.serve")


class TextWriter(Protocol):
    """What answers the client; used on the event loop."""

    def add(self, index: int, event: TokenEvent) -> None:
        """A token of a text, or its end."""

    def finish(self, usage: TokenCounts) -> None:
        """All texts have ended."""

    def fail(self, error: OxError) -> None:
        """They never will."""


class TokenCounts:
    """How many tokens a request of a client took; a prompt counts once, whatever the number of its texts."""

    __slots__ = ("cached", "completion", "prompt")

    def __init__(self) -> None:
        self.prompt = self.cached = self.completion = 0

    def log_fields(self) -> dict[str, int]:
        """For the access log."""
        return {"prompt_tokens": self.prompt, "completion_tokens": self.completion}


class TextJob:
    """Submits requests to an engine and hands what comes of them to a writer.

    Args:
        model: makes the texts, and counts the request.
        requests: one for each text.
        choices: so many requests in a row have the same prompt.
        writer: gets what comes.
        received_at: when the request arrived, by the model's clock.
        headers: HTTP headers or gRPC metadata.
    """

    def __init__(
        self,
        model: TextModel,
        requests: Sequence[GenerationRequest],
        choices: int,
        writer: TextWriter,
        received_at: float,
        headers: Mapping[bytes, bytes],
    ) -> None:
        self._model, self._requests, self._choices = model, requests, choices
        self._now = model.clock.now
        self._writer, self._received_at, self._headers = writer, received_at, headers
        self._submitted_at = self._now()
        self._first_at = 0.0  # time of the first token
        self._handles: list[GenerationHandle] = []
        self._open = set(range(len(requests)))  # texts that have not ended
        self.counts = TokenCounts()
        self.counts.prompt = sum(len(request.prompt) for request in requests[::choices])
        self.ended = False

    def submit(self) -> None:
        """On the event loop, where the engine calls back: once for all events of a step. From then on the job counts
        the request, as answered or as failed.

        Raises:
            ServeError: the engine refuses a request; then none runs, and the caller counts the failure.
        """
        loop, engine = asyncio.get_running_loop(), self._model.engine
        self._submitted_at = self._now()
        try:
            for index, request in enumerate(self._requests):
                receive = partial(self._receive, index)
                self._handles.append(engine.submit(request, receive, self._fail, loop))
        except ServeError:
            self._cancel()
            raise

    def abandon(self) -> None:
        """The client has left."""
        if not self.ended:
            self._model.stages.failed(None, self._received_at, self._headers)
            self._cancel()

    def _cancel(self) -> None:
        self.ended = True
        for handle in self._handles:
            handle.cancel()

    def set_paused(self, paused: bool) -> None:
        """The client reads slowly, or reads again."""
        for index in self._open:
            handle = self._handles[index]
            if paused:
                handle.pause()
            else:
                handle.resume()

    def _receive(self, index: int, event: TokenEvent) -> None:
        if self.ended:
            return
        if event.token is not None:
            self.counts.completion += 1
            self._first_at = self._first_at or self._now()
        if event.finish_reason is not None:
            self._open.discard(index)
            if event.usage is not None and index % self._choices == 0:
                self.counts.cached += event.usage.cached_tokens
        try:
            self._writer.add(index, event)
            if not self._open:
                self._writer.finish(self.counts)
                self.ended = True
                now = self._now()
                times = self._received_at, self._submitted_at, self._first_at or now, now
                self._model.stages.text(times, self.counts.log_fields(), self._headers, generations=len(self._requests))
        except Exception:  # no caller could answer this client
            log.exception("a text could not be written")
            self._fail(ServeError("the server failed on this request", status=500, hint="its log"))

    def _fail(self, error: OxError) -> None:
        if not self.ended:
            self._cancel()
            self._model.stages.failed(error, self._received_at, self._headers)
            self._writer.fail(error)
