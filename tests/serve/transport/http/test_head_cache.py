"""Heads that came before are not parsed again, and nobody can tell but by the time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from waiting import wait_until

from ox.errors import ServeError
from ox.serve import RequestLimits
from ox.serve.transport.http import Exchange, head_cache
from ox.serve.transport.http.head_cache import HeadCache

GET = b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n"


def post(body: bytes, target: bytes = b"/b", *lines: bytes) -> bytes:
    more = b"".join(line + b"\r\n" for line in lines)
    return b"POST %s HTTP/1.1\r\nhost: x\r\n%scontent-length: %d\r\n\r\n%s" % (target, more, len(body), body)


@pytest.fixture
def plane(listen: Any) -> Iterator[Any]:
    with listen(limits=RequestLimits(body=10_000, buffered=15_000, linger_s=0.2)) as running:
        yield running


@pytest.fixture
def parsed(plane: Any, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The targets of the requests that went through the parser."""
    from ox.serve.transport.http.incoming_request import IncomingRequest

    found: list[bytes] = []
    original = IncomingRequest.on_message_complete

    def noted(incoming: IncomingRequest) -> None:
        found.append(incoming.target)
        original(incoming)

    monkeypatch.setattr(IncomingRequest, "on_message_complete", noted)
    return found


def told(client: Any) -> tuple[str, str]:
    status, _, body = client.reply()
    assert status == 200
    answer = json.loads(body)
    return answer["target"], answer["body"]


def test_the_second_time_and_on_another_connection(plane: Any, connect: Any, parsed: list[bytes]) -> None:
    for _ in range(2):
        with connect(plane) as client:
            for body in (b"one", b"two", b"six", b"three", b"seven", b"\r\n\r\n!", b"", b""):
                client.send(post(body))
                assert told(client) == ("/b", body.decode())
    assert len(parsed) == 3  # one for each length: 3, 5 and 0


def test_what_is_not_exactly_one_request_is_parsed(plane: Any, connect: Any, parsed: list[bytes]) -> None:
    with connect(plane) as client:
        client.send(post(b"one"))
        assert told(client) == ("/b", "one")
        for data, bodies in (
            (post(b"two") + post(b"six"), ["two", "six"]),
            (post(b"two") + b"\r\n", ["two"]),
            (b"\r\n" + post(b"two"), ["two"]),
            (post(b"two")[:-1], []),
            (b"o" + post(b"six"), ["two", "six"]),
            (post(b"two")[:9], []),
            (post(b"two")[9:], ["two"]),
        ):
            client.send(data)
            assert [told(client)[1] for _ in bodies] == bodies
            if not bodies:  # by the time that somebody else is answered, it has been read
                with connect(plane) as other:
                    other.send(GET)
                    other.reply()
        before = len(parsed)
        client.send(post(b"end"))
        assert told(client) == ("/b", "end") and len(parsed) == before


def test_a_known_request_inside_a_body_is_a_body(plane: Any, connect: Any) -> None:
    inner = post(b"one", b"/smuggled")
    with connect(plane) as client, connect(plane) as other:
        client.send(inner)
        assert told(client) == ("/smuggled", "one")
        client.send(post(inner)[: -len(inner)])
        other.send(GET)  # by the time that this is answered, the head alone has been read
        other.reply()
        client.send(inner)
        assert told(client) == ("/b", inner.decode())
        client.send(GET)
        assert told(client) == ("/a", "")


@pytest.mark.parametrize(
    ("data", "statuses"),
    [
        (post(b"hi", b"/b", b"expect: 100-continue"), [100, 200]),
        (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", [200]),
        (b"\r\n" + GET, [200]),
        (b"GET /%s HTTP/1.1\r\nhost: x\r\n\r\n" % (b"a" * head_cache.MAX_HEAD_BYTES), [200]),
    ],
    ids=["expect", "chunked", "blank", "long"],
)
def test_what_is_parsed_every_time(
    plane: Any, connect: Any, parsed: list[bytes], data: bytes, statuses: list[int]
) -> None:
    with connect(plane) as client:
        for _ in range(3):
            client.send(data)
            assert [client.reply()[0] for _ in statuses] == statuses
    assert len(parsed) == 3


def test_who_closes_is_closed_every_time(plane: Any, connect: Any) -> None:
    for _ in range(3):
        with connect(plane) as client:
            client.send(post(b"hi", b"/b", b"connection: close"))
            assert client.reply()[1]["connection"] == "close" and client.closed()


def test_what_is_refused_is_not_remembered(plane: Any, connect: Any) -> None:
    for _ in range(3):
        with connect(plane) as client:
            client.send(GET[:-2] + b"host: y\r\n\r\n")
            assert client.reply()[0] == 400 and client.closed()


def test_a_known_head_and_then_nonsense(plane: Any, connect: Any) -> None:
    for _ in range(2):
        with connect(plane) as client:
            client.send(post(b"one"))
            assert told(client)[1] == "one"
            client.send(post(b"one") + b"x")
            assert told(client)[1] == "one"
            client.send(post(b"one"))
            assert client.reply()[0] == 400 and client.closed()


def test_a_door_is_asked_every_time(listen: Any, connect: Any) -> None:
    asked: list[bytes] = []

    def admit(method: bytes, target: bytes, headers: dict[bytes, bytes], peer: str) -> None:
        asked.append(target)
        if len(asked) % 2 == 0:
            raise ServeError("no", status=429)

    with listen(admit=admit) as plane, connect(plane) as client:
        for status in (200, 429) * 3:
            client.send(post(b"hi"))
            assert client.reply()[0] == status
        assert plane.on_loop(lambda: plane.listener_state.buffered) == 0
    assert len(asked) == 6


def test_all_bodies_together_are_still_bounded(plane: Any, connect: Any) -> None:
    with connect(plane) as one, connect(plane) as two:
        one.send(post(bytes(9000)))
        one.reply()
        two.send(post(bytes(9900))[:-1])
        with connect(plane) as other:
            other.send(GET)
            other.reply()
        one.send(post(bytes(9000)))
        assert one.reply()[0] == 503


def test_a_connection_whose_heads_are_all_different_stops_trying(plane: Any, connect: Any) -> None:
    with connect(plane) as client:
        for n in range(50):
            client.send(post(b"", b"/%d" % n))
            assert told(client)[0] == f"/{n}"
    assert plane.on_loop(lambda: len(plane.listener_state.head_cache._heads)) <= 10


def test_the_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_cache, "MAX_HEADS", 10)
    table = HeadCache()
    for n in range(1000):
        head = b"GET /%d HTTP/1.1\r\nhost: x\r\n\r\n" % n
        table.add(head, b"GET", b"/%d" % n, {b"host": b"x"})
        assert table.find(head) is not None
    assert len(table._heads) <= 10


def test_find() -> None:
    table = HeadCache()
    table.add(post(b"abc"), b"POST", b"/b", {b"host": b"x", b"content-length": b"3"})
    found = table.find(post(b"xyz"))
    assert found is not None and post(b"xyz")[found.body_start : found.body_end] == b"xyz"
    for data in (b"", b"\r\n\r\n", post(b"xyz")[:-1], post(b"xyz") + b"\r", post(b"xy"), post(b"xyz")[1:], GET, b"abc"):
        assert table.find(data) is None


@pytest.mark.parametrize("last", [b"HTTP/1.1\r\nhost: x\r\nconnection: close", b"HTTP/1.0"])
@pytest.mark.parametrize("at_once", [True, False])
def test_nothing_runs_after_the_last_request(listen: Any, connect: Any, last: bytes, at_once: bool) -> None:
    got: list[Exchange] = []

    def handle(exchange: Exchange) -> None:
        got.append(exchange)
        if exchange.target == b"/known":
            exchange.reply(200)

    known, last = b"GET /known HTTP/1.1\r\nhost: x\r\n\r\n", b"GET /last " + last + b"\r\n\r\n"
    with listen(handle) as plane, connect(plane) as client:
        for _ in range(3):
            client.send(known)
            assert client.reply()[0] == 200
        client.send(last + known if at_once else last)
        wait_until(lambda: len(got) == 4)
        client.send(known)
        plane.on_loop(lambda: None)  # the loop has looked at what has come
        plane.on_loop(lambda: got[-1].reply(200, b"bye"))
        assert client.reply()[2] == b"bye" and client.closed()
        assert [exchange.target for exchange in got] == [b"/known"] * 3 + [b"/last"]
