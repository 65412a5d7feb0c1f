"""The texts that answer one request of a client, from their submission to their ends."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from ox.errors import OxError, ServeError
from ox.serve.generation.engine import GenerationEngine
from ox.serve.generation.handle import GenerationHandle
from ox.serve.generation.request import GenerationRequest, TokenEvent
from ox.serve.protocol.text.step_events import StepEvents

log = logging.getLogger("ox.serve")


class TextWriter(Protocol):
    """What answers the client; used on the event loop."""

    def add(self, index: int, event: TokenEvent) -> None:
        """A token of a text, or its end."""

    def flush(self) -> None:
        """Called after all events that came together."""

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
        events: brings the events to the event loop.
        engine: makes the texts.
        requests: one for each text.
        choices: so many requests in a row have the same prompt.
        writer: gets what comes.
    """

    def __init__(
        self,
        events: StepEvents,
        engine: GenerationEngine,
        requests: Sequence[GenerationRequest],
        choices: int,
        writer: TextWriter,
    ) -> None:
        self._events, self._engine, self._requests, self._choices = events, engine, requests, choices
        self._writer = writer
        self._handles: list[GenerationHandle] = []
        self._open = set(range(len(requests)))  # texts that have not ended
        self.counts = TokenCounts()
        self.counts.prompt = sum(len(request.prompt) for request in requests[::choices])
        self.ended = False

    def submit(self) -> None:
        """Raises ServeError if the engine refuses a request; then none runs."""
        try:
            for index, request in enumerate(self._requests):
                post = partial(self._events.post, self, index)
                self._handles.append(self._engine.submit(request, post, post))
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

    # ---- Receiver

    def receive(self, index: int, event: TokenEvent | OxError) -> None:
        if self.ended:
            return
        if isinstance(event, OxError):
            self.cancel()
            self._writer.fail(event)
            return
        if event.token is not None:
            self.counts.completion += 1
        if event.finish_reason is not None:
            self._open.discard(index)
            if event.usage is not None:
                self.counts.cached += event.usage.cached_tokens if index % self._choices == 0 else 0
        try:
            self._writer.add(index, event)
        except Exception:  # no caller could answer this client
            log.exception("a text could not be written")
            self.cancel()
            self._writer.fail(ServeError("the server failed on this request", status=500, hint="its log"))

    def flush(self) -> None:
        if self.ended:
            return
        self._writer.flush()
        if not self._open:
            self.ended = True
            self._writer.finish(self.counts)
