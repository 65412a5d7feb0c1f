"""Expect: 100-continue (RFC 9110, 10.1.1)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ox.serve import RequestLimits


@pytest.fixture(scope="module")
def plane(listen: Any) -> Iterator[Any]:
    with listen(limits=RequestLimits(body=1000, linger_s=0.2)) as running:
        yield running


def head(length: int, target: bytes = b"/", version: bytes = b"1.1", expect: bytes = b"100-continue") -> bytes:
    start = b"POST %s HTTP/%s\r\nhost: x\r\ncontent-length: %d\r\n" % (target, version, length)
    return start + b"expect: %s\r\n\r\n" % expect


def test_who_waits_is_told_to_go_on(plane: Any, connect: Any) -> None:
    with connect(plane) as client:
        for _ in range(3):
            client.send(head(5, expect=b"100-Continue"))
            assert client.reply() == (100, {}, b"")
            client.send(b"hello")
            assert json.loads(client.reply()[2])["body"] == "hello"


def test_who_does_not_wait_is_answered_as_well(plane: Any, connect: Any) -> None:
    with connect(plane) as client:
        client.send((head(2, b"/1") + b"hi") * 2)
        assert [client.reply()[0] for _ in range(4)] == [100, 200, 100, 200]


def test_chunked(plane: Any, connect: Any) -> None:
    with connect(plane) as client:
        client.send(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\nexpect: 100-continue\r\n\r\n")
        assert client.reply()[0] == 100
        client.send(b"2\r\nhi\r\n0\r\n\r\n")
        assert json.loads(client.reply()[2])["body"] == "hi"


def test_a_refusal_instead_of_going_on(plane: Any, connect: Any) -> None:
    for data, expected in ((head(1001), 413), (head(5, expect=b"101-dalmatians"), 417)):
        with connect(plane) as client:
            client.send(data)
            status, headers, _ = client.reply()
            assert status == expected and headers["connection"] == "close" and client.closed()


def test_http_1_0_knows_no_interim_answer(plane: Any, connect: Any) -> None:
    with connect(plane) as client:
        client.send(head(2, version=b"1.0"))
        plane.on_loop(lambda: None)  # the head has been read
        client.send(b"hi")
        status, _, body = client.reply()
        assert status == 200 and json.loads(body)["body"] == "hi"
