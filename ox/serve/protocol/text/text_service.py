"""What the handlers of all text dialects use: models, clients, the way of events to the loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import cached_property
from typing import Protocol, TypeVar

from ox.clock import Clock
from ox.errors import ServeError
from ox.serve.access import Guard, credential_of
from ox.serve.access.client import Client
from ox.serve.config.request_limits import RequestLimits
from ox.serve.protocol.text.event_stream import Heartbeats
from ox.serve.protocol.text.fields import refuse_unknown
from ox.serve.protocol.text.remarks import Remarks
from ox.serve.protocol.text.response_store import MEMORY, ResponseStore
from ox.serve.protocol.text.sampling import TextOptions
from ox.serve.protocol.text.text_model import TextModel
from ox.serve.repository.repository import Repository
from ox.serve.telemetry.stages import Stages
from ox.serve.transport.http import Exchange

INLINE_BYTES = 8 << 10  # larger requests are read and tokenised in a thread


class Call(Protocol):
    """A request that was read."""

    @property
    def options(self) -> TextOptions: ...


C = TypeVar("C", bound=Call)
R = TypeVar("R")


class TextService:
    """The text models of a repository.

    Args:
        repository: the models.
        limits: limits on requests.
        clock: by whose calendar stored responses expire.
        guard: access control; None for none.

    Attributes:
        responses_path: a file of stored responses, which several processes share; "" where none can be written.
    """

    def __init__(self, repository: Repository, limits: RequestLimits, clock: Clock, guard: Guard | None = None) -> None:
        self._repository, self.limits, self._clock, self.guard = repository, limits, clock, guard
        self.responses_path: str = MEMORY

    @cached_property
    def responses(self) -> ResponseStore:
        """The stored responses, opened when they are first used."""
        path, most = self.responses_path, self.limits.responses
        return ResponseStore(path or MEMORY, most if path else 0, self.limits.responses_s, self._clock)

    def close(self) -> None:
        """Closes the stored responses."""
        if "responses" in self.__dict__:
            self.responses.close()
        if "_grammars" in self.__dict__:
            self._grammars.shutdown(wait=False, cancel_futures=True)

    @cached_property
    def _grammars(self) -> ThreadPoolExecutor:
        """The threads that compile what holds texts to a form: other requests do not wait for them."""
        return ThreadPoolExecutor(max(2, (os.cpu_count() or 1) // 2), "ox-grammar")

    @cached_property
    def heartbeats(self) -> Heartbeats:
        """For the loop that runs when it is first used."""
        return Heartbeats(asyncio.get_running_loop())

    def find(self, name: str, version: str = "") -> TextModel:
        """The text model of that name. A request for texts of another model is a failed request of that.

        Raises:
            ServeError: there is none (404), it is not ready, or it makes no texts (400).
        """
        model = self._repository.find(name, version)
        if model.text is None:
            hint = "inference with tensors" if model.text_tensors is None else "/v1/embeddings or /v1/rerank"
            error = ServeError(f"model '{model.name}' makes no texts", hint=hint)
            model.stages.failed(error, model.stages.now())
            raise error
        return model.text

    def models(self) -> list[TextModel]:
        """All that are ready."""
        return [model.text for model in self._repository.models() if model.text is not None]

    def client(self, exchange: Exchange) -> Client:
        """Who sends a request, which access control has let through."""
        peer = exchange.peer
        if self.guard is None:
            return Client(peer)
        return self.guard.client(credential_of(exchange.headers), peer)

    def begin(
        self,
        exchange: Exchange,
        model: TextModel,
        read: Callable[[], C],
        start: Callable[[C], None],
        takes_long: bool = False,
    ) -> Awaitable[None] | None:
        """Reads a request and starts it: here, or if that may take long in a thread. Its form is compiled in
        another one. What is raised counts as a failed request of the model.

        Args:
            exchange: the request.
            model: it goes to.
            read: returns what was read.
            start: has the texts made; on the event loop.
            takes_long: whether reading may take long although the body is small.

        Raises:
            ServeError: what `read` and `start` raise.
        """
        count_errors(exchange, model.stages)
        # a compressed body may be a thousand times larger than it is
        if takes_long or len(exchange.body) > INLINE_BYTES or b"content-encoding" in exchange.headers:
            return self._begin_later(exchange, model, read, start)
        call = self._checked(read())
        if call.options.constraint is not None:
            return self._begin_formed(exchange, model, call, start)
        self.note(exchange, model.stages, call.options.remarks)
        start(call)
        return None

    def _checked(self, call: C) -> C:
        if self._repository.strict:
            refuse_unknown(call.options.remarks)
        return call

    def note(self, exchange: Exchange, stages: Stages | None, remarks: Remarks) -> None:
        """Has the response say which parameters change nothing, and counts a request with unknown ones.

        Raises:
            ParameterError: there are unknown ones, and the server is strict.
        """
        if self._repository.strict:
            refuse_unknown(remarks)
        exchange.extra_headers += remarks.header()
        if remarks.unknown and stages is not None:
            stages.unknown_parameters += 1

    async def _begin_later(
        self, exchange: Exchange, model: TextModel, read: Callable[[], C], start: Callable[[C], None]
    ) -> None:
        call = await self.in_thread(exchange, lambda: self._checked(read()))
        if call is not None:
            await self._begin_formed(exchange, model, call, start)

    async def _begin_formed(self, exchange: Exchange, model: TextModel, call: C, start: Callable[[C], None]) -> None:
        if call.options.constraint is not None:

            def compiled() -> C:
                call.options.check_form(model)
                return call

            if await self.in_thread(exchange, compiled, self._grammars) is None:
                return
        self.note(exchange, model.stages, call.options.remarks)
        start(call)

    async def in_thread(
        self, exchange: Exchange, prepare: Callable[[], R], threads: Executor | None = None
    ) -> R | None:
        """What `prepare` returns, run in one of these threads, by default the event loop's; None if the client has left
        meanwhile."""
        left = False

        def leave() -> None:
            nonlocal left
            left = True
            if exchange.on_error is not None:
                exchange.on_error(None)

        def run() -> R | None:  # threads that are awaited by others do nothing for those who have left
            return None if left else prepare()

        exchange.on_cancel = leave
        result = await asyncio.get_running_loop().run_in_executor(threads, run)
        exchange.on_cancel = None
        return None if left else result


def count_errors(exchange: Exchange, stages: Stages) -> None:
    """From now on an error response counts as a failed request of a model; until `on_error` is None, because a job
    counts the request."""
    exchange.on_error = lambda error: stages.failed(error, exchange.received_at, exchange.headers)
