"""What all connections of one listener share: the handler, the limits, the deadlines, draining."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from math import ceil
from typing import TYPE_CHECKING, Protocol

from ox.serve.answer_memory import SPARE, AnswerMemory
from ox.serve.http.connection import Connection
from ox.serve.http.exchange import Exchange
from ox.serve.http.heads import Heads
from ox.serve.http.pace import HURRY, Pace, least_rate
from ox.serve.limits import Limits

if TYPE_CHECKING:
    from ox.serve.telemetry.trail import Trail

log = logging.getLogger("ox.serve")


class Link(Protocol):
    """A connection as its front sees it, of whichever protocol."""

    transport: asyncio.Transport
    deadline: float  # by the loop's clock; once it has passed, `overdue` is called about every second

    @property
    def unread(self) -> int:
        """Bytes of answers that it holds because its client does not take them."""

    def overdue(self, now: float) -> None: ...

    def recount(self) -> None:
        """Looks again at `unread`, and tells the front what has changed."""

    def moved(self) -> int:
        """Bytes of answers that its client has taken of late."""

    def hurry(self) -> None:
        """Runs wait for the memory that answers hold: ends what takes too little of its own. Called about every second
        as long as that goes on."""

    def drain(self) -> None:
        """The server stops: closes what is idle; what is not closes by itself when its last answer is written."""


# Takes a transport and what the client sent first, and gives the protocol that goes on with it, which has already
# called `Front.opened` with itself and calls `Front.closed` in its `connection_lost`.
Upgrade = Callable[[asyncio.Transport, bytes], asyncio.Protocol]


# Looks at the method, the target and the headers of a request and at the client's address, before the body is read;
# raises ServeError for what may not go ahead.
Admit = Callable[[bytes, bytes, dict[bytes, bytes], str], None]


class Front:
    """What all connections of a server share.

    Args:
        handle: answers a request.
        limits: what clients may do.
        upgrade: takes over the connections that speak HTTP/2.
        admit: says whether a request may go ahead.
        answers: counts large answers; without one, none are expected.
    """

    def __init__(
        self,
        handle: Callable[[Exchange], None],
        limits: Limits,
        upgrade: Upgrade | None = None,
        admit: Admit | None = None,
        answers: AnswerMemory | None = None,
    ) -> None:
        self.answers = answers or AnswerMemory(limits.unread)
        self.pressure = 0  # how often it began that runs wait for the memory of answers
        self.slow = 0  # connections and streams that were ended because they took too little of their answers
        self.pressed: list[Callable[[], None]] = []  # called at every look while that goes on
        self._pressed, self._waits = False, 0
        self.upgrade, self.admit = upgrade, admit
        self.handle, self.limits = handle, limits
        self.loop = asyncio.get_running_loop()
        self.heads = Heads()
        self.connections: set[Link] = set()
        self.replies: Counter[int] = Counter()  # answers by status
        self.buffered = 0  # bytes of bodies that are held
        self.unread = 0  # bytes of answers that are held
        self._sparing = False
        self._given_up: set[Link] = set()
        self.draining = False
        self.trail: Trail | None = None  # what notes every answer, if anything does
        self._empty = asyncio.Event()
        self._empty.set()
        self._sweep_s = min(1.0, min(limits.request_s, limits.idle_s, limits.write_s, limits.linger_s) / 4)
        self._sweeper: asyncio.TimerHandle | None = None

    def __call__(self) -> Connection:
        return Connection(self)

    def opened(self, connection: Link) -> None:
        self.connections.add(connection)
        self._empty.clear()
        if self._sweeper is None:
            self._sweeper = self.loop.call_later(self._sweep_s, self._sweep)

    def closed(self, connection: Link) -> None:
        self.connections.discard(connection)
        self._given_up.discard(connection)
        if not self.connections:
            self._empty.set()

    def hold(self, size: int) -> None:
        """Accounts for bytes of a small answer that waits for its client, or (negative) no longer does."""
        self.unread += size
        self.answers.unread_by(size)
        if size > 0 and self.unread > self._most_unread() and not self._sparing:
            self._sparing = True
            self.loop.call_soon(self._spare)  # not from within whoever writes just now

    def _most_unread(self) -> int:
        """What large answers leave of the limit, but always a part of it."""
        limit = self.limits.unread
        return max(limit - self.answers.held, limit // SPARE)

    def _spare(self) -> None:
        """Gives up the connections that take the least of what they hold, until the others fit. Nobody is refused
        because of them."""
        self._sparing = False
        for connection in self.connections:
            connection.recount()
        left = [link for link in self.connections - self._given_up if link.unread]
        excess = sum(connection.unread for connection in left) - self._most_unread()
        for connection in sorted(left, key=lambda link: (link.moved() / link.unread, -link.unread)):
            if excess <= 0:
                break
            excess -= connection.unread
            self.give_up(connection, connection.unread)

    def give_up(self, connection: Link, size: int) -> None:
        """Ends a connection whose client does not take its answers."""
        log.warning("a client does not take its answers: %d bytes are given up", size)
        self.slow += 1
        self._given_up.add(connection)
        connection.transport.abort()

    def pace(self, size: int, taken: int) -> Pace:
        """What is asked, while runs wait, of a client that holds `size` bytes and has taken `taken` so far."""
        looks = ceil(self.limits.write_s / HURRY / self._sweep_s)
        return Pace(self.pressure, looks, looks * self._sweep_s * least_rate(size, self.limits), taken)

    def _look_for_pressure(self) -> bool:
        """Whether runs have waited for memory since the last look."""
        answers = self.answers
        before, self._pressed = self._pressed, answers.since is not None or answers.waits != self._waits
        self._waits = answers.waits
        self.pressure += self._pressed and not before
        return self._pressed

    def _sweep(self) -> None:
        now = self.loop.time()
        try:
            pressed = self._look_for_pressure()
            for call in self.pressed if pressed else ():
                call()
            for connection in list(self.connections):
                if now > connection.deadline:
                    self._call(connection, connection.overdue, now)
                if pressed:
                    self._call(connection, connection.hurry)
        finally:
            self._sweeper = self.loop.call_later(self._sweep_s, self._sweep) if self.connections else None

    def _call(self, connection: Link, method: Callable[..., None], *arguments: float) -> None:
        """One that fails at it may not keep the others from their turn."""
        try:
            method(*arguments)
        except Exception:
            log.exception("a connection failed")
            connection.transport.abort()

    async def drain(self) -> None:
        """Finishes what was accepted, then closes every connection; gives up after `limits.drain_s`."""
        self.draining = True  # from here on every answer says "connection: close"
        give_up = self.loop.time() + self.limits.drain_s
        # A client that has just got an answer may have its next request on the wire: answer that one rather than reset.
        await self._wait(0.1)
        for connection in list(self.connections):
            connection.drain()
        await self._wait(give_up - self.loop.time())
        for connection in list(self.connections):
            connection.transport.abort()
        await self._wait(0.5)
        if self._sweeper is not None:
            self._sweeper.cancel()

    async def _wait(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._empty.wait(), max(0.0, seconds))
        except TimeoutError:
            return
