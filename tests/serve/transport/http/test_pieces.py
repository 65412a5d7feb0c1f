"""Bodies that come in many reads are put together once, and cost what has come, not what was announced."""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ox.serve import RequestLimits
from ox.serve.transport.http import Exchange

MIB = 1 << 20


def handle(exchange: Exchange) -> None:
    exchange.reply(200, b"%s %s" % (type(exchange.body).__name__.encode(), hashlib.sha256(exchange.body).digest()))


@pytest.fixture(scope="module")
def plane(listen: Any) -> Iterator[Any]:
    with listen(handle, limits=RequestLimits(body=64 * MIB, buffered=200 * MIB)) as running:
        yield running


def pieces(data: bytes, chunked: bool, size: int) -> list[bytes]:
    if not chunked:
        return [b"content-length: %d\r\n\r\n" % len(data), *(data[at : at + size] for at in range(0, len(data), size))]
    found = [b"%x;x=y\r\n%s\r\n" % (len(part := data[at : at + size]), part) for at in range(0, len(data), size)]
    return [b"transfer-encoding: chunked\r\n\r\n", *found, b"0\r\n\r\n"]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(("length", "size"), [(0, 1), (1, 1), (10, 3), (70_000, 999), (5 * MIB, 400_001)])
def test_what_comes_is_what_was_sent(plane: Any, connect: Any, length: int, size: int, chunked: bool) -> None:
    data = random.Random(length).randbytes(length)
    with connect(plane) as client:
        for _ in range(2):
            for piece in [b"POST / HTTP/1.1\r\nhost: x\r\n", *pieces(data, chunked, size)]:
                client.send(piece)
            status, _, body = client.reply()
            assert status == 200 and body.endswith(b" " + hashlib.sha256(data).digest())
    assert plane.on_loop(lambda: plane.listener_state.buffered) == 0


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.fixture
def crowd(plane: Any, connect: Any) -> Iterator[Callable[[int], list[Any]]]:
    """So many clients, closed at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda count: [stack.enter_context(connect(plane)) for _ in range(count)]


def test_a_body_costs_what_has_come(plane: Any, crowd: Any) -> None:
    """A hundred clients announce 64 MiB each and send a little of it."""
    before = resident()
    *clients, other = crowd(101)
    for client in clients:
        client.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\nab" % (64 * MIB))
    for client in clients:
        client.send(b"cd")
    other.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n1")
    assert other.reply()[0] == 200
    assert plane.on_loop(lambda: plane.listener_state.buffered) <= 400
    assert resident() - before < 100 * MIB


def test_all_bodies_together_are_bounded(plane: Any, crowd: Any) -> None:
    clients = crowd(4)
    for client in clients:
        client.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (60 * MIB))
        with contextlib.suppress(OSError):
            client.send(bytes(60 * MIB - 1))
    assert clients[3].reply()[0] == 503
