"""The clients of one process, and when each sends: after each answer (closed loop), or at a fixed rate (open loop)."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from time import perf_counter

import numpy as np

from ox.bench.address import Address
from ox.bench.answer import Validator
from ox.bench.client import Client
from ox.bench.grpc import GrpcClient
from ox.bench.http1 import Head, HttpClient
from ox.bench.recorder import Recorder
from ox.bench.ticker import Ticker

MAX_CONNECTING = 64  # connections that are opened together; a server's backlog is not what is measured
BACKOFF = (0.02, 1.0)  # seconds until a connection is tried again: first, longest


class Pool(ABC):
    """Keeps `count` connections open, assigns requests to them, and enforces the timeout."""

    http: type[HttpClient] = HttpClient
    grpc: type[GrpcClient] = GrpcClient

    def __init__(
        self,
        address: Address,
        requests: Sequence[bytes],
        judge: Validator,
        recorder: Recorder,
        count: int,
        timeout: float,
    ) -> None:
        self.address, self.requests, self.judge, self.recorder = address, requests, judge, recorder
        self.count, self.timeout = count, timeout
        self.heads: dict[bytes, Head] = {}  # of HTTP's answers, once parsed
        self.wholes: dict[int, tuple[bytes, ...]] = {}  # gRPC's right answers as they come, by request
        self.clients: set[Client] = set()
        self.turn = 0
        self.begun = self.closing = False
        self.connecting: set[asyncio.Task[None]] = set()
        self.context = address.context()

    # ---- what a subclass decides

    @abstractmethod
    def free(self, client: Client) -> None:
        """A client is idle: it gets the next request."""

    @abstractmethod
    def waiting(self) -> int:
        """How many requests wait for a connection."""

    @abstractmethod
    def expire(self, now: float) -> None:
        """Fails requests that have waited longer than the timeout."""

    @abstractmethod
    def begin(self) -> None: ...

    # ---- what clients call

    def next_place(self) -> int:
        self.turn = (self.turn + 1) % len(self.requests)
        return self.turn

    def lost(self, client: Client) -> None:
        if client not in self.clients:
            return
        self.clients.discard(client)
        if not self.closing:
            self.recorder.reconnects += 1
            self._again(0 if client.useful else client.refusals + 1)

    # ---- one step

    async def open(self) -> None:
        """Raises OSError where no connection at all can be had; one that is refused among others counts as failed."""
        for begun in range(0, self.count, MAX_CONNECTING):
            tried = (self._connect(0) for _ in range(min(MAX_CONNECTING, self.count - begun)))
            for outcome in await asyncio.gather(*tried, return_exceptions=True):
                if isinstance(outcome, OSError) and (begun or self.clients or self.connecting):
                    self._unconnected(perf_counter(), outcome)
                    self._again(1)
                elif isinstance(outcome, BaseException):
                    raise outcome

    async def run(self) -> None:
        self.begun = True
        self.begin()
        pause = min(0.1, self.timeout / 4)
        while True:
            await asyncio.sleep(pause)
            now = perf_counter()
            self.expire(now)
            for client in [c for c in self.clients if c.busy and now - c.sent > self.timeout]:
                client.fail("timeout", f"no answer within {self.timeout:g} s")
            # what is still on its way to a connection counts, too
            waiting = self.waiting() or self.connecting or any(c.busy for c in self.clients)
            if now >= self.recorder.stop and not waiting and not self._finish(now):
                break
        self.recorder.fold()

    def _finish(self, now: float) -> bool:
        """Goes on with what was begun, which a server would hold on to; whether there is such."""
        begun = [client for client in self.clients if client.unfinished and not (client.busy or client.lost)]
        for client in begun:
            client.ask(self.next_place(), now)
        return bool(begun)

    async def close(self) -> None:
        self.closing = True
        trying = list(self.connecting)
        for task in trying:
            task.cancel()
        await asyncio.gather(*trying, return_exceptions=True)
        for client in list(self.clients):
            client.lost = True
            client.transport.abort()
        await asyncio.sleep(0.01)  # the transports' own clean-up

    async def _connect(self, refusals: int) -> Client:
        kind, created = self.grpc if self.address.grpc else self.http, list[Client]()

        def create() -> Client:
            created.append(kind(self))
            return created[-1]

        task = asyncio.create_task(self.address.connect(create, self.context))
        try:
            if not (await asyncio.wait([task], timeout=self.timeout))[0]:
                for client in created:  # this side closes it: not a failure of its own
                    client.lost = True
                raise TimeoutError
        finally:
            task.cancel()
        _, client = task.result()
        client.refusals = refusals
        self.clients.add(client)
        if client.lost:  # refused on the way here
            self.lost(client)
        return client

    def _again(self, refusals: int) -> None:
        task = asyncio.get_running_loop().create_task(self._replace(refusals))
        self.connecting.add(task)
        task.add_done_callback(self.connecting.discard)

    def _unconnected(self, when: float, error: Exception) -> None:
        self.recorder.failed(when, "connect", str(error) or type(error).__name__)

    async def _replace(self, refusals: int) -> None:
        """Another connection; `refusals` in a row were of no use, and the last of them is counted already."""
        counted = perf_counter()
        while not self.closing:
            await self._pause(refusals)
            begun = perf_counter()
            if begun >= self.recorder.stop and not self.waiting():
                if counted < self.recorder.start:  # a client that was never there while it was measured
                    self.recorder.failed(self.recorder.start, "connect", "no connection in the whole time")
                return
            try:
                client = await self._connect(refusals)
            except OSError as error:
                self._unconnected(begun, error)
                counted, refusals = begun, refusals + 1
                continue
            if self.begun:  # before that, `begin` finds it
                self.free(client)
            return

    async def _pause(self, refusals: int) -> None:
        """Longer with each refusal, and not beyond the end."""
        if refusals:
            first, longest = BACKOFF
            pause, left = min(first * 2.0 ** min(refusals - 1, 16), longest), self.recorder.stop - perf_counter()
            await asyncio.sleep(min(pause, left) if left > 0 else pause)


class Closed(Pool):
    """Each client sends its next request as soon as it has its answer."""

    def begin(self) -> None:
        for client in list(self.clients):
            self.free(client)

    def free(self, client: Client) -> None:
        now = perf_counter()
        if not client.lost and (now < self.recorder.stop or client.unfinished):
            client.ask(self.next_place(), now)

    def waiting(self) -> int:
        return 0

    def expire(self, now: float) -> None:
        return


class Open(Pool):
    """Requests are sent at their scheduled times, independent of earlier ones.

    One for which no connection is free waits for one, and its latency counts from the time when it should have left:
    a server that stalls is charged for everybody who would have come meanwhile (no coordinated omission).
    """

    def __init__(
        self,
        address: Address,
        requests: Sequence[bytes],
        judge: Validator,
        recorder: Recorder,
        count: int,
        timeout: float,
    ) -> None:
        super().__init__(address, requests, judge, recorder, count, timeout)
        self.idle: list[Client] = []
        self.queue: deque[float] = deque()
        self.times: Iterator[float] = iter(())

    def schedule(self, times: Iterator[float]) -> None:
        self.times = times

    def begin(self) -> None:
        self.idle = list(self.clients)
        self.next = next(self.times)
        self.ticker = Ticker(self._tick)
        self._tick()

    def _tick(self) -> None:
        now = perf_counter()
        late = self.recorder.late
        while self.next <= now:
            meant = self.next
            if meant >= self.recorder.stop:
                self.ticker.close()
                return
            client = self._idle()
            if client is None:
                self.queue.append(meant)
            else:
                if meant >= self.recorder.start:
                    late.append(now - meant)
                client.ask(self.next_place(), meant)
                now = perf_counter()
            self.next = next(self.times)
        self.ticker.at(self.next)

    def _idle(self) -> Client | None:
        while self.idle:
            client = self.idle.pop()
            if not client.lost:
                return client
        return None

    def free(self, client: Client) -> None:
        if client.lost:
            return
        if self.queue:
            client.ask(self.next_place(), self.queue.popleft())
        elif client.unfinished and (now := perf_counter()) >= self.recorder.stop:
            client.ask(self.next_place(), now)
        else:
            self.idle.append(client)

    def waiting(self) -> int:
        return len(self.queue)

    def expire(self, now: float) -> None:
        while self.queue and now - self.queue[0] > self.timeout:
            self.recorder.failed(self.queue.popleft(), "timeout", "no connection was free in time")

    async def close(self) -> None:
        self.ticker.close()
        await super().close()


def arrivals(kind: str, rate: float, start: float, part: int, parts: int) -> Iterator[float]:
    """Times of requests from `start` on, `rate` a second over all `parts`, of which this is number `part`."""
    if kind == "constant":
        number = part
        while True:
            yield start + number / rate
            number += parts
    random = np.random.default_rng((part, parts))
    at = start
    while True:
        for gap in random.exponential(parts / rate, 4096):
            at += float(gap)
            yield at
