"""One client: a connection with one request at a time. Subclasses implement the protocol."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from time import perf_counter
from typing import TYPE_CHECKING, cast

from ox.bench.answer import Reply

if TYPE_CHECKING:
    from ox.bench.pool import Pool


class Client(asyncio.Protocol, ABC):
    transport: asyncio.Transport

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.known = pool.judge.known
        self.busy = False
        self.lost = False
        self.useful = False  # it brought a right answer
        self.refusals = 0  # connections in a row, before this one, that brought none
        self.meant = self.sent = 0.0
        self.place = 0  # which of the requests is out

    @property
    def unfinished(self) -> bool:
        """Whether further requests belong to those that it has sent."""
        return False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def ask(self, place: int, meant: float) -> None:
        """Sends a request whose latency counts from `meant`."""
        self.busy, self.place, self.meant, self.sent = True, place, meant, perf_counter()
        self.send(self.pool.requests[place])

    @abstractmethod
    def send(self, request: bytes) -> None: ...

    def answered(self, reply: Reply) -> None:
        """Validates a response that differs from the reference response."""
        problem = self.pool.judge.problem(self.place, reply)
        if problem is None:
            self.right()
            return
        self.busy = False
        self.pool.recorder.failed(self.meant, problem, _excerpt(reply))
        self.pool.free(self)

    def right(self) -> None:
        self.busy, self.useful = False, True
        self.pool.recorder.right(self.meant, perf_counter())
        self.pool.free(self)

    def fail(self, kind: str, example: str = "") -> None:
        """Records a failed request and closes the connection."""
        if self.lost:
            return
        self.lost = True
        if self.busy:
            self.busy = False
            self.pool.recorder.failed(self.meant, kind, example)
        elif not self.sent:  # refused before it could ask: a client that is not served, like one that cannot connect
            self.pool.recorder.failed(perf_counter(), kind, example)
        self.transport.abort()
        self.pool.lost(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail("closed", str(exc or "the server closed the connection"))


def _excerpt(reply: Reply) -> str:
    return reply.body[:300].decode("utf-8", "replace")
