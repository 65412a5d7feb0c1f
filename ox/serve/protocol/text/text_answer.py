"""An HTTP request for texts in progress: what it reserves, counts and tells the log, whatever its dialect."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from ox.errors import OxError, ServeError
from ox.serve.access.client import Client
from ox.serve.generation.request import GenerationRequest, TokenEvent
from ox.serve.protocol.text.event_stream import COMMENT, CONTENT_TYPE, EventStream
from ox.serve.protocol.text.text_job import TextJob, TokenCounts
from ox.serve.protocol.text.text_model import TextModel
from ox.serve.protocol.text.text_service import TextService
from ox.serve.transport.http import Exchange

log = logging.getLogger("ox.serve")


class TextAnswer(ABC):
    """The writer of a `TextJob` that answers an exchange.

    Args:
        exchange: the request.
        model: makes the texts.
        client: who waits for them.
    """

    def __init__(self, exchange: Exchange, model: TextModel, client: Client) -> None:
        self.exchange, self.model, self._client = exchange, model, client
        self._reserved = 0.0

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
        self.exchange.send_error(error)

    def reply(self, write: Callable[[], bytes], takes_long: bool) -> None:
        """Sends what `write` returns; if that takes long, it runs in a thread, and not where the client has left."""
        exchange, left = self.exchange, False
        if not takes_long:
            exchange.reply(200, write())
            return

        def leave() -> None:
            nonlocal left
            left = True

        def send(written: asyncio.Future[bytes | None]) -> None:
            exchange.on_cancel = None
            error = written.exception()
            if error is not None:
                log.error("an answer could not be written", exc_info=error)
                exchange.send_error(ServeError("the server failed on this request", status=500, hint="its log"))
            elif (body := written.result()) is not None and not left:
                exchange.reply(200, body)

        exchange.on_cancel = leave
        running = asyncio.get_running_loop().run_in_executor(None, lambda: None if left else write())
        running.add_done_callback(send)


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

    def fail(self, error: OxError) -> None:
        if not self.stream.begun:
            self.stream.close()
            super().fail(error)
            return
        self.settle()
        self.stream.send(self.error_event(error))
        self.stream.end()

    @abstractmethod
    def error_event(self, error: OxError) -> bytes:
        """The event that tells of an error after the response has begun."""
