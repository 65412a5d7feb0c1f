"""The handlers of the paths beside the protocol's: the page at `/`, its figures, golden samples, and `/metrics`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from inspect import isawaitable

import numpy as np
import orjson

from ox.errors import ServeError
from ox.serve.protocol.rest.codec import Codec
from ox.serve.protocol.rest.routing import Context, PathParameters, Reply
from ox.serve.telemetry.snapshot import Snapshot
from ox.serve.transport.http import JSON, Exchange
from ox.serve.transport.http.encoding import compress
from ox.serve.web.page import page
from ox.serve.web.random_request import random_request
from ox.serve.web.sample import sample

HTML = b"text/html; charset=utf-8"
NO_STORE = b"cache-control: no-store\r\n"


def index(context: Context, exchange: Exchange, names: PathParameters) -> Reply:
    """The page at `/`."""
    body, headers = page(exchange.connection.listener_state.root_path.decode())
    return Reply(body, HTML, headers)


async def metrics(context: Context, exchange: Exchange, names: PathParameters) -> Reply:
    """All counters, in the format of Prometheus."""
    accept, encoding = (exchange.headers.get(name, b"") for name in (b"accept", b"accept-encoding"))
    figures = await _awaited(context.service.figures())

    def write() -> Reply:
        from ox.serve.telemetry.metrics import render  # loaded at the first request

        body, content_type = render([figures], accept.decode("latin-1"))
        compressed, line = compress(body, encoding, len(body))
        return Reply(compressed, content_type, b"vary: accept\r\n" + (line or b"vary: accept-encoding\r\n"))

    # Many models take tens of milliseconds to write down: not on the event loop's thread.
    return await asyncio.to_thread(write)


async def figures(context: Context, exchange: Exchange, names: PathParameters) -> Reply:
    """What the page draws its live figures from."""
    return Reply(orjson.dumps(await _awaited(context.service.figures())), JSON, NO_STORE)


def golden_sample(context: Context, exchange: Exchange, names: PathParameters) -> Reply:
    """A golden sample of a model, as a request.

    Raises:
        ServeError: there is no such model or sample (404), or JSON cannot carry it (501).
    """
    name, number = names["model"], names["number"]
    samples = context.service.repository.find(name, names["version"]).samples
    if not number.isdecimal() or len(number) > 6 or int(number) >= len(samples):
        raise ServeError(f"model '{name}' has no such golden sample", status=404, expected=f"0 to {len(samples) - 1}")
    return Reply(sample(samples[int(number)]))


async def random_sample(context: Context, exchange: Exchange, names: PathParameters) -> Reply:
    """Random values for a model's inputs, as a request.

    Raises:
        ServeError: there is no such model (404), or no input is known that it takes (501).
    """
    model = context.service.repository.find(names["model"], names["version"])
    if model.text is not None:
        raise ServeError(f"model '{model.name}' takes texts", status=501)
    codec = Codec(model.name, model.version, model.signature, context.limits.reply, context.service.regions)
    # An image takes seconds to draw, write and read: not on the event loop's thread.
    return Reply(await asyncio.to_thread(random_request, model, codec, np.random.default_rng()), JSON, NO_STORE)


async def _awaited(figures: Snapshot | Awaitable[Snapshot]) -> Snapshot:
    """One worker returns its figures; one of several first collects those of the others."""
    return await figures if isawaitable(figures) else figures
