"""The pages beside the protocol's: the one at `/`, its figures, a model's golden samples, and `/metrics`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import isawaitable

import orjson

from ox.errors import OxError, ServeError
from ox.serve.http import JSON, Exchange
from ox.serve.service import Service
from ox.serve.telemetry.snapshot import Snapshot
from ox.serve.web.page import page
from ox.serve.web.sample import sample

HTML = b"text/html; charset=utf-8"
FRESH = b"cache-control: no-store\r\n"
Answer = tuple[bytes, bytes, bytes]  # body, content type, further header lines


class Site:
    """Finds what answers a path; None for paths that are not of this site."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, parts: list[str]) -> Callable[[Exchange], None] | None:
        """`parts` are those of the path between its slashes."""
        match parts:
            case [""]:
                return self._page
            case ["metrics"]:
                return partial(self._later, self._metrics)
            case ["v2", "ox", "figures"]:
                return partial(self._later, self._figures)
            case ["v2", "ox", "models", name, "versions", version, "samples", number]:
                return lambda exchange: exchange.reply(200, self._sample(name, version, number))
        return None

    def _page(self, exchange: Exchange) -> None:
        body, head = page()
        exchange.reply(200, body, HTML, head)

    async def _metrics(self, exchange: Exchange) -> Answer:
        from ox.serve.telemetry.metrics import render  # not before somebody asks

        accept = exchange.headers.get(b"accept", b"").decode("latin-1")
        # Many models take tens of milliseconds to write down: not on the event loop's thread.
        figures = await _now(self.service.figures())
        body, content_type = await asyncio.get_running_loop().run_in_executor(None, render, [figures], accept)
        return body, content_type, b""

    async def _figures(self, exchange: Exchange) -> Answer:
        """What the page draws its live figures from."""
        return orjson.dumps(await _now(self.service.figures())), JSON, FRESH

    def _sample(self, name: str, version: str, number: str) -> bytes:
        samples = self.service.repository.find(name, version).samples
        if not number.isdecimal() or len(number) > 6 or int(number) >= len(samples):
            raise ServeError(
                f"model '{name}' has no such golden sample", status=404, expected=f"0 to {len(samples) - 1}"
            )
        return sample(samples[int(number)])

    def _later(self, answer: Callable[[Exchange], Awaitable[Answer]], exchange: Exchange) -> None:
        """Answers once a coroutine has the answer."""
        task = asyncio.ensure_future(self._answer(answer, exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, answer: Callable[[Exchange], Awaitable[Answer]], exchange: Exchange) -> None:
        try:
            body, content_type, extra = await answer(exchange)
            exchange.reply(200, body, content_type, extra)
        except OxError as error:
            exchange.refuse(error)
        except Exception:
            exchange.fail()


async def _now(figures: Snapshot | Awaitable[Snapshot]) -> Snapshot:
    """One worker knows its figures at once, one of several asks the others first."""
    return await figures if isawaitable(figures) else figures
