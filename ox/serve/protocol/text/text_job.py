"""The texts that answer one request of a client, from their submission to their ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from ox.errors import OxError, ServeError
from ox.serve.generation.engine import GenerationEngine
from ox.serve.generation.handle import GenerationHandle
from ox.serve.generation.request import GenerationRequest, TokenEvent

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
        engine: makes the texts.
        requests: one for each text.
        choices: so many requests in a row have the same prompt.
        writer: gets what comes.
    """

    def __init__(
        self,
        engine: GenerationEngine,
        requests: Sequence[GenerationRequest],
        choices: int,
        writer: TextWriter,
    ) -> None:
        self._engine, self._requests, self._choices = engine, requests, choices
        self._writer = writer
        self._handles: list[GenerationHandle] = []
        self._open = set(range(len(requests)))  # texts that have not ended
        self.counts = TokenCounts()
        self.counts.prompt = sum(len(request.prompt) for request in requests[::choices])
        self.ended = False

    def submit(self) -> None:
        """On the event loop, where the engine calls back: once for all events of a step.

        Raises:
            ServeError: the engine refuses a request; then none runs.
        """
        loop = asyncio.get_running_loop()
        try:
            for index, request in enumerate(self._requests):
                receive = partial(self._receive, index)
                self._handles.append(self._engine.submit(request, receive, self._fail, loop))
        except ServeError:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Nobody waits for the texts any more."""
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
        if event.finish_reason is not None:
            self._open.discard(index)
            if event.usage is not None and index % self._choices == 0:
                self.counts.cached += event.usage.cached_tokens
        try:
            self._writer.add(index, event)
            if not self._open:
                self.ended = True
                self._writer.finish(self.counts)
        except Exception:  # no caller could answer this client
            log.exception("a text could not be written")
            self._fail(ServeError("the server failed on this request", status=500, hint="its log"))

    def _fail(self, error: OxError) -> None:
        if not self.ended:
            self.cancel()
            self._writer.fail(error)
