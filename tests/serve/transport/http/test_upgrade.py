"""One port for both: a client that begins with HTTP/2's preface is handed over, whoever else begins is not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ox.serve.transport.http import ListenerState

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
GET = b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n"


class Other(asyncio.Protocol):
    """Stands for HTTP/2: says back whatever it is sent, its first bytes too."""

    listener_state: ListenerState

    def __init__(self, transport: asyncio.Transport, first: bytes, peer: str) -> None:
        assert peer == "127.0.0.1"
        self.transport, self.deadline = transport, self.listener_state.loop.time() + 60
        self.listener_state.add_connection(self)
        self.data_received(first)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    def overdue(self, now: float) -> None:
        raise AssertionError("not in a test")

    def drain(self) -> None:
        self.transport.write(b"bye")
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.listener_state.remove_connection(self)


@pytest.fixture
def plane(listen: Any) -> Any:
    with listen(upgrade=Other) as running:
        Other.listener_state = running.listener_state
        yield running


def received(client: Any, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := client.socket.recv(count - len(data))):
        data += more
    return data


@pytest.mark.parametrize("step", [1, 7, len(PREFACE), 200])
def test_the_preface_is_handed_over(plane: Any, connect: Any, step: int) -> None:
    with connect(plane) as client:
        whole = PREFACE + b"and more"
        for at in range(0, len(whole), step):
            client.send(whole[at : at + step])
        assert received(client, len(whole)) == whole
        client.send(b"later")
        assert received(client, 5) == b"later"
        kinds = plane.on_loop(lambda: [type(connection) for connection in plane.listener_state.connections])
        assert kinds == [Other]


def test_it_drains_and_is_forgotten(listen: Any, connect: Any) -> None:
    with listen(upgrade=Other) as plane:
        Other.listener_state = plane.listener_state
        client = connect(plane)
        client.send(PREFACE)
        assert received(client, len(PREFACE)) == PREFACE
    with client:
        assert received(client, 4) == b"bye"
    assert not plane.listener_state.connections


@pytest.mark.parametrize("first", [b"P", b"PR", b"PRI * HTTP/2.0\r\n\r\nS"])
def test_what_only_begins_like_it_is_no_http_1(plane: Any, connect: Any, first: bytes) -> None:
    with connect(plane) as client:
        client.send(first)
        client.send(b"!\r\n\r\n")
        status, headers, _ = client.reply()
        assert status == 400 and headers["connection"] == "close"


def test_post_begins_with_the_same_letter(plane: Any, connect: Any) -> None:
    with connect(plane) as client:
        client.send(b"P")
        client.send(b"OST /b HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi")
        assert client.reply()[0] == 200
        client.send(PREFACE)  # too late: only the first bytes of a connection may say so
        assert client.reply()[0] == 400


def test_only_where_somebody_takes_over(listen: Any, connect: Any) -> None:
    with listen() as plane, connect(plane) as client:
        client.send(GET)
        assert client.reply()[0] == 200
        client.send(PREFACE)
        assert client.reply()[0] == 400
