"""State that all connections of a listener share: handler, limits, deadlines, draining."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from math import ceil
from typing import TYPE_CHECKING, Protocol

import orjson

from ox.clock import Clock
from ox.errors import OxError
from ox.serve.config.request_limits import RequestLimits
from ox.serve.config.trusted_proxies import TrustedProxies
from ox.serve.response_memory import SMALL_SHARE, ResponseMemory
from ox.serve.transport.http.client_rate import PRESSURE_SPEEDUP, ClientRate, min_rate
from ox.serve.transport.http.connection import Connection
from ox.serve.transport.http.cors import Cors
from ox.serve.transport.http.exchange import Exchange
from ox.serve.transport.http.forwarded import client_of
from ox.serve.transport.http.head_cache import HeadCache

if TYPE_CHECKING:
    from ox.serve.telemetry.access_log import AccessLog

log = logging.getLogger("ox.serve")


class ClientConnection(Protocol):
    """The interface of connections to their listener, the same for HTTP/1.1 and HTTP/2."""

    transport: asyncio.Transport
    deadline: float  # loop time; after it the listener calls `on_deadline` about every second

    @property
    def unread(self) -> int:
        """Bytes of responses that the client has not read."""

    def on_deadline(self, now: float) -> None: ...

    def update_unread(self) -> None:
        """Updates `unread` and the listener's total."""

    def recently_sent(self) -> int:
        """Bytes that the client has read recently."""

    def enforce_rate(self) -> None:
        """Ends connections or streams whose client reads too slowly. Called about every second while inference waits
        for response memory."""

    def drain(self) -> None:
        """Closes an idle connection; a busy one closes itself after its last response."""


# Takes a transport, the first bytes and the client's address, and returns the protocol that continues. The protocol has
# called `ListenerState.add_connection` and calls `ListenerState.remove_connection` in its `connection_lost`.
Upgrade = Callable[[asyncio.Transport, bytes, str], asyncio.Protocol]


# Access control by method, target, headers and client address, before the body is read. Raises ServeError.
Admit = Callable[[bytes, bytes, dict[bytes, bytes], str], None]


def v2_error_body(error: OxError) -> bytes:
    """The body of an error response in the format of the Open Inference Protocol."""
    return orjson.dumps({"error": error.one_line()})


class ListenerState:
    """State that all connections of a listener share.

    Args:
        handle: the request handler.
        limits: limits on requests and connections.
        upgrade: takes over connections that speak HTTP/2.
        admit: access control; raises ServeError.
        response_memory: counts large responses.
        cors: the header lines for pages of other origins; None for none.
        root_path: what is removed from the begin of targets.
        proxies: those that report the addresses of their clients.
        clock: of the requests.
    """

    def __init__(
        self,
        handle: Callable[[Exchange], None],
        limits: RequestLimits,
        upgrade: Upgrade | None = None,
        admit: Admit | None = None,
        response_memory: ResponseMemory | None = None,
        *,
        cors: Cors | None = None,
        root_path: bytes = b"",
        proxies: TrustedProxies | None = None,
        clock: Clock,
    ) -> None:
        self.clock, self.now = clock, clock.now
        self.response_memory = response_memory or ResponseMemory(limits.unread, clock)
        self.pressure_episodes = 0  # episodes in which inference waited for response memory
        self.slow_clients = 0  # connections and streams ended because the client read too slowly
        self.on_pressure: list[Callable[[], None]] = []  # called at each sweep of such an episode
        self._under_pressure, self._wait_count = False, 0
        self.upgrade, self.admit = upgrade, admit
        self.handle, self.limits = handle, limits
        self.cors, self.root_path, self._proxies = cors, root_path, proxies
        self.loop = asyncio.get_running_loop()
        self.head_cache = HeadCache()
        self.connections: set[ClientConnection] = set()
        self.replies: Counter[int] = Counter()  # responses by status
        self.buffered = 0  # bytes of request bodies in memory
        self.unread = 0  # bytes of small responses that clients have not read
        self._shedding = False
        self._aborted: set[ClientConnection] = set()
        self.draining = False
        self.access_log: AccessLog | None = None  # logs each response
        self.error_body: Callable[[bytes, OxError], bytes] = lambda _, error: v2_error_body(error)  # by the target
        self._no_connections = asyncio.Event()
        self._no_connections.set()
        self._sweep_s = min(1.0, min(limits.request_s, limits.idle_s, limits.write_s, limits.linger_s) / 4)
        self._sweep_timer: asyncio.TimerHandle | None = None

    def __call__(self, peer: str | None = None) -> Connection:
        return Connection(self, peer)

    def client(self, peer: str, headers: Mapping[bytes, bytes]) -> str:
        """The address of the client of a request that came from `peer`, which may be a proxy."""
        return peer if self._proxies is None else client_of(peer, headers, self._proxies)

    def add_connection(self, connection: ClientConnection) -> None:
        self.connections.add(connection)
        self._no_connections.clear()
        if self._sweep_timer is None:
            self._sweep_timer = self.loop.call_later(self._sweep_s, self._sweep)

    def remove_connection(self, connection: ClientConnection) -> None:
        self.connections.discard(connection)
        self._aborted.discard(connection)
        if not self.connections:
            self._no_connections.set()

    def add_unread(self, size: int) -> None:
        """Adds bytes of small responses that wait for their client; negative when they no longer wait."""
        self.unread += size
        self.response_memory.add_unread(size)
        if size > 0 and self.unread > self._max_unread() and not self._shedding:
            self._shedding = True
            self.loop.call_soon(self._shed_slowest)  # not inside the current write

    def add_copied(self, size: int) -> None:
        """Adds bytes of large responses that a transport holds as a copy; negative when it has sent them."""
        if size > 0:
            self.response_memory.charge(size)
        else:
            self.response_memory.release(-size)

    def _max_unread(self) -> int:
        """The part of the limit that large responses do not use, at least 1 / SMALL_SHARE of it."""
        limit = self.limits.unread
        return max(limit - self.response_memory.used, limit // SMALL_SHARE)

    def _shed_slowest(self) -> None:
        """Aborts the connections that read the smallest part of their responses, until the rest is within the limit, so
        that no other client is refused because of them."""
        self._shedding = False
        for connection in self.connections:
            connection.update_unread()
        candidates = [connection for connection in self.connections - self._aborted if connection.unread]
        excess = sum(connection.unread for connection in candidates) - self._max_unread()
        for connection in sorted(
            candidates, key=lambda connection: (connection.recently_sent() / connection.unread, -connection.unread)
        ):
            if excess <= 0:
                break
            excess -= connection.unread
            self.abort(connection, connection.unread)

    def abort(self, connection: ClientConnection, size: int) -> None:
        """Aborts a connection whose client does not read its responses."""
        log.warning("a client does not read its responses: %d bytes were dropped", size)
        self.slow_clients += 1
        self._aborted.add(connection)
        connection.transport.abort()

    def client_rate(self, size: int, sent: int) -> ClientRate:
        """The minimum rate under memory pressure for a response of `size` bytes, of which `sent` bytes are sent."""
        checks = ceil(self.limits.write_s / PRESSURE_SPEEDUP / self._sweep_s)
        return ClientRate(self.pressure_episodes, checks, checks * self._sweep_s * min_rate(size, self.limits), sent)

    def _check_pressure(self) -> bool:
        """Whether inference has waited for response memory since the last sweep."""
        answers = self.response_memory
        was_under_pressure, self._under_pressure = (
            self._under_pressure,
            answers.waiting_since is not None or answers.wait_count != self._wait_count,
        )
        self._wait_count = answers.wait_count
        self.pressure_episodes += self._under_pressure and not was_under_pressure
        return self._under_pressure

    def _sweep(self) -> None:
        now = self.loop.time()
        try:
            under_pressure = self._check_pressure()
            for call in self.on_pressure if under_pressure else ():
                call()
            for connection in list(self.connections):
                if now > connection.deadline:
                    self._call(connection, connection.on_deadline, now)
                if under_pressure:
                    self._call(connection, connection.enforce_rate)
        finally:
            self._sweep_timer = self.loop.call_later(self._sweep_s, self._sweep) if self.connections else None

    def _call(self, connection: ClientConnection, method: Callable[..., None], *arguments: float) -> None:
        """Calls a method; an exception ends this connection only."""
        try:
            method(*arguments)
        except Exception:
            log.exception("exception in a connection")
            connection.transport.abort()

    async def drain(self) -> None:
        """Answers the accepted requests, then closes all connections; aborts after `limits.drain_s`."""
        self.draining = True  # all responses have "connection: close" from here on
        deadline = self.loop.time() + self.limits.drain_s
        # A client may have sent its next request before it saw the close: answer that one instead of a reset.
        await self._wait(0.1)
        for connection in list(self.connections):
            connection.drain()
        await self._wait(deadline - self.loop.time())
        for connection in list(self.connections):
            connection.transport.abort()
        await self._wait(0.5)
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()

    async def _wait(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._no_connections.wait(), max(0.0, seconds))
        except TimeoutError:
            return
