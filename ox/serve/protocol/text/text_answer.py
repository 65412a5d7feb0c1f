"""An HTTP request for texts in progress: what it reserves, counts and tells the log, whatever its dialect."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from ox.errors import OxError, ServeError
from ox.serve.access.client import Client
from ox.serve.generation.request import GenerationRequest, TokenEvent
from ox.serve.protocol.text.event_stream import COMMENT, CONTENT_TYPE, EventStream
from ox.serve.protocol.text.text_job import TextJob, TokenCounts
from ox.serve.protocol.text.text_model import TextModel
from ox.serve.protocol.text.text_service import TextService
from ox.serve.transport.http import Exchange

log = logging.getLogger("ox.serve")
R = TypeVar("R")


class TextAnswer(ABC):
    """The writer of a `TextJob` that answers an exchange.

    Args:
        exchange: the request.
        model: makes the texts.
        client: who waits for them.

    Attributes:
        left: whether the client has left.
    """

    def __init__(self, exchange: Exchange, model: TextModel, client: Client) -> None:
        self.exchange, self.model, self._client = exchange, model, client
        self._reserved, self.left = 0.0, False

    def start(self, service: TextService, requests: Sequence[GenerationRequest], choices: int) -> None:
        """Has the texts made.

        Raises:
            ServeError: the client used too many tokens (429), or the engine refuses a request.
        """
        tokens = sum(len(request.prompt) for request in requests[::choices])
        tokens += sum(request.max_tokens or 0 for request in requests)
        self._reserved = self._client.reserve(tokens, self.model.clock.now())
        received_at, headers = self.exchange.received_at, self.exchange.headers
        self.job = TextJob(self.model, requests, choices, self, received_at, headers)
        try:
            self.job.submit()
        except ServeError:
            self._client.settle(self._reserved, 0)
            raise
        self.exchange.on_error = None
        self.exchange.on_cancel = self.leave
        self.exchange.cancel_at_eof()
        self.exchange.release_body()

    def leave(self) -> None:
        """The client has left."""
        self.left = True
        if not self.job.ended:  # else only the response is not written yet
            self.job.abandon()
            self.settle()

    def settle(self) -> None:
        """Counts the tokens that were used. Called once, before the response ends."""
        counts = self.job.counts
        self._client.settle(self._reserved, counts.prompt + counts.completion)
        self.exchange.log_fields = {"model": self.model.name, **counts.log_fields()}

    @abstractmethod
    def add(self, index: int, event: TokenEvent) -> None:
        """See `TextWriter`."""

    @abstractmethod
    def finish(self, usage: TokenCounts) -> None:
        """See `TextWriter`."""

    def fail(self, error: OxError) -> None:
        """See `TextWriter`."""
        self.settle()
        self.send_error(error)

    def send_error(self, error: OxError) -> None:
        """Ends the response with an error."""
        self.exchange.send_error(error)

    def reply(self, write: Callable[[], bytes], takes_long: bool) -> None:
        """Sends what `write` returns, once `settle` was called; what takes long runs in a thread."""
        if takes_long:
            self.in_thread(write, lambda body: self.exchange.reply(200, body))
        else:
            self.exchange.reply(200, write())

    def in_thread(self, work: Callable[[], R], done: Callable[[R], None]) -> None:
        """Runs `work` in a thread when all texts are complete, and then hands its result to `done` on the event loop.
        Neither is called where the client has left."""

        def run() -> R | None:
            return None if self.left else work()

        def end(running: asyncio.Future[R | None]) -> None:
            error = running.exception()
            if error is not None:
                log.error("an answer could not be written", exc_info=error)
            if self.left:
                return
            if error is not None:
                self.send_error(ServeError("the server failed on this request", status=500, hint="its log"))
            else:
                done(running.result())  # type: ignore[arg-type]  # None only where the client has left

        asyncio.get_running_loop().run_in_executor(None, run).add_done_callback(end)


class StreamedAnswer(TextAnswer):
    """Answers with server-sent events, or with another kind of stream.

    Attributes:
        content_type: of the response.
        heartbeat: what is sent while there is no event; clients ignore it.
    """

    stream: EventStream
    content_type, heartbeat = CONTENT_TYPE, COMMENT

    def start(self, service: TextService, requests: Sequence[GenerationRequest], choices: int) -> None:
        super().start(service, requests, choices)
        self.stream = EventStream(
            self.exchange, service.heartbeats, self.job.set_paused, self.leave, self.content_type, self.heartbeat
        )

    def leave(self) -> None:
        self.stream.close()
        super().leave()

    def finish(self, usage: TokenCounts) -> None:
        self.settle()
        self.stream.end()

    def send_error(self, error: OxError) -> None:
        if not self.stream.begun:
            self.stream.close()
            super().send_error(error)
            return
        self.stream.send(self.error_event(error))
        self.stream.end()

    @abstractmethod
    def error_event(self, error: OxError) -> bytes:
        """The event that tells of an error after the response has begun."""
