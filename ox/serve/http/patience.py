"""How long a connection waits for its client, and how much it holds meanwhile."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from ox.errors import ServeError
from ox.serve.http.exchange import Exchange
from ox.serve.limits import SLOWEST, Limits

if TYPE_CHECKING:
    from ox.serve.http.front import Front


class Patience(asyncio.Protocol):
    """What a connection does about a client that sends or reads slowly."""

    transport: asyncio.Transport
    front: Front
    limits: Limits
    exchanges: deque[Exchange]
    backlog: deque[Exchange]
    deadline: float
    unread = 0  # bytes of answers that the front accounts for
    unsent: int  # what waited in the transport when it was last looked at
    size: int
    stopped: bool
    receiving: bool
    in_head: bool
    write_paused: bool

    def advance(self) -> None:
        """Writes and begins what may be."""
        raise NotImplementedError

    def _refuse(self, error: BaseException | None) -> None:
        raise NotImplementedError

    def pause_writing(self) -> None:
        self.write_paused = True
        self.unsent = self.transport.get_write_buffer_size()
        self.deadline = self.front.loop.time() + self.limits.write_s
        self.recount()

    def recount(self) -> None:
        """Accounts for the answers that the client does not take, or that wait for their turn."""
        unread = self.transport.get_write_buffer_size() if self.write_paused else 0
        for exchange in islice(self.exchanges, len(self.exchanges) - len(self.backlog)):
            if exchange.response is not None:
                unread += len(exchange.response)
        if unread != self.unread:
            more, self.unread = unread - self.unread, unread
            self.front.hold(more)

    def resume_writing(self) -> None:
        self.write_paused = False
        self.deadline = self.front.loop.time() + self.limits.idle_s
        self.advance()

    def overdue(self, now: float) -> None:
        """The deadline has passed: of a slow reader, a slow sender, a refused client or an idle one."""
        if self.write_paused:
            unsent = self.transport.get_write_buffer_size()
            if unsent > self.unsent - SLOWEST * self.limits.write_s:
                self.transport.abort()
            self.unsent, self.deadline = unsent, now + self.limits.write_s
        elif self.exchanges:
            self.deadline = now + self.limits.idle_s  # the client waits for us
        elif self.receiving and not self.stopped:
            got = f"{self._so_far()} in {self.limits.request_s:g} s"
            what = "the request did not arrive whole in time (--limit request_s)"
            self._refuse(ServeError(what, status=408, got=got))
        elif self.transport.is_closing() or (self.stopped and self.transport.can_write_eof()):
            self.transport.abort()
        else:  # of TLS the other side is still to be told
            self.stopped, self.deadline = True, now + self.limits.linger_s
            self.transport.close()

    def _so_far(self) -> str:
        return "half a head" if self.in_head else f"{self.size} bytes of a body"
