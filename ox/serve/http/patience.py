"""How long a connection waits for its client, and how much it holds meanwhile."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from ox.errors import ServeError
from ox.serve.answer_memory import Parts
from ox.serve.http.exchange import Exchange
from ox.serve.http.pace import Pace, no_room
from ox.serve.http.sending import Sending
from ox.serve.limits import SLOWEST, Limits

if TYPE_CHECKING:
    from ox.serve.http.front import Front


class Patience(asyncio.Protocol, ABC):
    """What a connection does about a client that sends or reads slowly."""

    transport: asyncio.Transport
    front: Front
    limits: Limits
    exchanges: deque[Exchange]
    backlog: deque[Exchange]
    deadline: float
    sending: Sending | None
    handed: int  # bytes of large answers that were given to the transport
    unread = 0  # bytes of answers that the front accounts for
    pace: Pace | None = None  # how fast its client is while it has to hurry
    first: Exchange | None = None  # whose answer the others waited for at the last look
    unsent: int  # what waited in the transport when it was last looked at
    size: int
    stopped: bool
    receiving: bool
    half_closed: bool
    in_head: bool
    write_paused: bool

    @abstractmethod
    def drain(self) -> None:
        """See `Link`."""

    @abstractmethod
    def advance(self) -> None:
        """Writes and begins what may be."""

    @abstractmethod
    def _refuse(self, error: BaseException | None) -> None:
        """Answers a request that cannot be read whole."""

    def pause_writing(self) -> None:
        self.write_paused = True
        self.unsent = self._left()
        self.deadline = self.front.loop.time() + self.limits.write_s
        self.recount()

    def recount(self) -> None:
        """Accounts for the answers that the client does not take, or that wait for their turn."""
        unread = self.transport.get_write_buffer_size() if self.write_paused else 0
        for exchange in islice(self.exchanges, len(self.exchanges) - len(self.backlog)):
            if type(exchange.response) is bytes:  # large ones count themselves
                unread += len(exchange.response)
        if unread != self.unread:
            more, self.unread = unread - self.unread, unread
            self.front.hold(more)

    def resume_writing(self) -> None:
        self.write_paused = False
        self.deadline = self.front.loop.time() + self.limits.idle_s
        if self.sending is None:
            self.pace = None
        self.advance()

    def _left(self) -> int:
        """Bytes of begun answers that the client has not taken."""
        left = self.transport.get_write_buffer_size()
        return left if self.sending is None else left + self.sending.left

    def moved(self) -> int:
        """See `Link`."""
        return self.unsent - self._left() if self.write_paused else 0

    def hurry(self) -> None:
        """See `Link`."""
        self._shed()
        if not self.write_paused:
            self.pace = None
            return
        left = self._left()
        taken = self.handed - self.transport.get_write_buffer_size()
        if self.pace is None or self.pace.pressure != self.front.pressure:
            size = left if self.sending is None else self.sending.size
            self.pace = self.front.pace(size, taken)
        elif self.pace.slow(taken):
            self.front.give_up(self, left)

    def _shed(self) -> None:
        """Answers that wait for an earlier one, which may itself wait for their memory: none of them has begun to
        leave, so they can still become refusals."""
        first = self.exchanges[0] if self.exchanges else None
        stuck = first is not None and first is self.first and first.response is None and self.sending is None
        self.first = first
        for exchange in list(self.exchanges) if stuck else ():
            if isinstance(exchange.response, Parts):
                self.front.replies[200] -= 1
                exchange.refuse(no_room())

    def overdue(self, now: float) -> None:
        """The deadline has passed: of a slow reader, a slow sender, a refused client or an idle one."""
        if self.write_paused:
            unsent = self._left()
            if unsent > self.unsent - SLOWEST * self.limits.write_s:
                self.front.slow += 1
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

    def send_on(self, sending: Sending) -> None:
        """The next piece of a large answer."""
        if sending.left and not self.transport.is_closing():
            piece = sending.next()
            self.handed += len(piece)
            self.transport.write(piece)
            return
        self.sending = None
        if not sending.keep_alive:
            self.finish()

    def finish(self) -> None:
        """The last answer of this connection is on its way."""
        self.stopped = True
        self.deadline = self.front.loop.time() + self.limits.write_s
        for exchange in self.exchanges:
            self.front.buffered -= len(exchange.body)
            if exchange.on_abandon is not None:
                exchange.on_abandon()
        self.exchanges.clear()
        self.backlog.clear()
        if not self.receiving or self.half_closed:
            self.transport.close()  # once everything is written
        elif not self.transport.is_closing():
            # Closing with unread bytes would reset the connection, and the client might never see the refusal.
            self.deadline = self.front.loop.time() + self.limits.linger_s
            if self.transport.can_write_eof():  # TLS cannot: its client goes by content-length
                self.transport.write_eof()

    def _so_far(self) -> str:
        return "half a head" if self.in_head else f"{self.size} bytes of a body"
