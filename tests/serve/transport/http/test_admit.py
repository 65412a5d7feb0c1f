"""Requests that are refused by their heads: no body of theirs is held, the connection goes on, nothing overtakes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from waiting import wait_until

from ox.errors import ServeError
from ox.serve import RequestLimits
from ox.serve.transport.http import Exchange

SEEN: list[tuple[bytes, bytes, str]] = []
HELD: list[Exchange] = []


def admit(method: bytes, target: bytes, headers: dict[bytes, bytes], peer: str) -> None:
    SEEN.append((method, target, peer))
    if headers.get(b"key") != b"right":
        status = int(headers.get(b"key", b"401"))
        raise ServeError("no", status=status, retry_after=2.4)


def handle(exchange: Exchange) -> None:
    if exchange.target == b"/slow":
        HELD.append(exchange)
    else:
        exchange.reply(200, b"%d" % len(exchange.body))


@pytest.fixture(scope="module")
def plane(listen: Any) -> Iterator[Any]:
    with listen(handle, limits=RequestLimits(body=1 << 20, linger_s=0.2), admit=admit) as running:
        yield running


def post(key: bytes, body: bytes, *lines: bytes, target: bytes = b"/x") -> bytes:
    more = b"".join(line + b"\r\n" for line in lines)
    return (
        b"POST %s HTTP/1.1\r\nhost: x\r\nkey: %s\r\ncontent-length: %d\r\n%s\r\n" % (target, key, len(body), more)
        + body
    )


def test_it_is_asked_once_with_the_address(plane: Any, connect: Any) -> None:
    SEEN.clear()
    with connect(plane) as client:
        client.send(post(b"right", b"abc") + b"GET /y HTTP/1.1\r\nhost: x\r\n\r\n")
        assert client.reply()[0] == 200 and client.reply()[0] == 401
    assert SEEN == [(b"POST", b"/x", "127.0.0.1"), (b"GET", b"/y", "127.0.0.1")]


def test_the_connection_goes_on_and_the_headers_say_why(plane: Any, connect: Any) -> None:
    with connect(plane) as client:
        client.send(post(b"401", bytes(1000)) + post(b"429", b"x") + post(b"503", b"") + post(b"403", b""))
        status, headers, body = client.reply()
        assert (
            status == 401 and headers["www-authenticate"] == 'Bearer realm="ox"' and json.loads(body)["error"] == "no"
        )
        status, headers, _ = client.reply()
        assert status == 429 and headers["retry-after"] == "3" and "connection" not in headers
        status, headers, _ = client.reply()
        assert status == 503 and headers["retry-after"] == "3"
        status, headers, _ = client.reply()
        assert status == 403 and not {"retry-after", "www-authenticate", "connection"} & set(headers)
        client.send(post(b"right", b"12345"))
        assert client.reply()[2] == b"5"


def test_no_body_of_theirs_is_held(plane: Any, connect: Any) -> None:
    with connect(plane) as client:
        client.send(post(b"401", bytes(900_000))[:-1])
        client.send(b"")
        with connect(plane) as other:  # by the time that this one is answered, most of that has been read
            other.send(post(b"right", b"1"))
            assert other.reply()[2] == b"1"
        assert plane.on_loop(lambda: plane.listener_state.buffered) == 0
        client.send(b"x")
        assert client.reply()[0] == 401
        client.send(post(b"right", b"1"))
        assert client.reply()[2] == b"1"


def test_chunked_bodies_too(plane: Any, connect: Any) -> None:
    head = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    with connect(plane) as client:
        client.send(head + b"5\r\nhello\r\n" * 1000 + b"0\r\n\r\n" + post(b"right", b"1"))
        assert client.reply()[0] == 401 and client.reply()[2] == b"1"


def test_who_asks_first_is_told_before_the_body(plane: Any, connect: Any) -> None:
    with connect(plane) as client:
        client.send(post(b"401", b"abc", b"expect: 100-continue")[:-3])
        status, headers, _ = client.reply()
        assert status == 401 and headers["connection"] == "close" and client.closed()


def test_answers_keep_their_order(plane: Any, connect: Any) -> None:
    SEEN.clear()
    with connect(plane) as client:
        client.send(post(b"right", b"", target=b"/slow") + post(b"401", b"x") * 50 + post(b"right", b"22"))
        wait_until(lambda: len(SEEN) > 1)
        plane.on_loop(lambda: HELD.pop().reply(200, b"slow"))
        assert client.reply()[2] == b"slow"
        assert [client.reply()[0] for _ in range(50)] == [401] * 50
        assert client.reply()[2] == b"2"


def test_a_refused_head_that_is_no_head_is_closed(plane: Any, connect: Any) -> None:
    with connect(plane) as client:
        client.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2000000\r\n\r\n")
        assert client.reply()[0] == 413 and client.closed()


def test_http_1_0_that_asked_to_stay_is_closed(plane: Any, connect: Any) -> None:
    with connect(plane) as client:
        client.send(b"GET /x HTTP/1.0\r\nkey: 401\r\nconnection: keep-alive\r\n\r\n")
        status, headers, _ = client.reply()
        assert status == 401 and headers["connection"] == "close" and client.closed()
