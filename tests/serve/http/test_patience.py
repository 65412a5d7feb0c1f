"""Clients that do not read what they asked for: what is held for them is bounded, and nobody else pays for it."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from ox.serve import Limits
from ox.serve.http import Exchange
from ox.serve.http.connection import Connection
from ox.serve.http.patience import Patience
from ox.serve.limits import MIB, SLOWEST

GET = b"GET /%d HTTP/1.1\r\nhost: x\r\n\r\n"


def many(exchange: Exchange) -> None:
    """As many bytes as the path says."""
    exchange.reply(200, bytes(int(exchange.target[1:])))


def settled(plane: Any, wanted: Any) -> None:
    """Waits until the front is as wanted; fails by the time limit of all tests, if ever."""
    give_up = time.monotonic() + 120
    while not plane.on_loop(lambda: wanted(plane.front)):
        assert time.monotonic() < give_up, (plane.front.unread, len(plane.front.connections))
        time.sleep(0.01)


@pytest.mark.parametrize("clients", [1, 12])
def test_unread_answers_are_bounded_together(listen: Any, connect: Any, clients: int) -> None:
    limits = Limits(unread=12 * MIB)
    with listen(many, limits=limits) as plane, ExitStack() as stack, connect(plane) as other:
        for _ in range(clients):
            client = stack.enter_context(connect(plane))
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.send(GET % (96 * MIB // clients))
            other.send(GET % MIB)  # one who reads
            assert len(other.reply()[2]) == MIB
        settled(plane, lambda front: len(front.connections) <= clients and 0 <= front.unread <= 12 * MIB)
        other.send(GET % MIB)
        assert len(other.reply()[2]) == MIB
        stack.close()
        settled(plane, lambda front: front.unread == 0 and len(front.connections) == 1)


def test_answers_that_wait_for_their_turn_count(listen: Any, connect: Any) -> None:
    got: list[Exchange] = []
    with listen(got.append, limits=Limits(unread=2 * MIB)) as plane, connect(plane) as client:
        client.send(GET % 1 * 4)
        settled(plane, lambda front: len(got) == 4)
        plane.on_loop(lambda: got[1].reply(200, bytes(MIB)))
        assert MIB < plane.on_loop(lambda: plane.front.unread) < MIB + 1000
        plane.on_loop(lambda: got[0].reply(200, b""))
        assert client.reply()[0] == 200 and len(client.reply()[2]) == MIB
        settled(plane, lambda front: front.unread == 0)
        plane.on_loop(lambda: got[3].reply(200, bytes(3 * MIB)))  # the third is still worked on
        assert client.closed()
        settled(plane, lambda front: front.unread == 0 and not front.connections)


def test_a_byte_now_and_then_is_not_reading(listen: Any) -> None:
    with listen(many) as plane:
        least = int(SLOWEST * plane.front.limits.write_s)
        left, aborted = [10 * least], []
        connection = plane.on_loop(lambda: Connection(plane.front))
        connection.transport = SimpleNamespace(
            get_write_buffer_size=lambda: left[0], abort=lambda: aborted.append(left[0])
        )
        plane.on_loop(connection.pause_writing)
        for taken in (least, least, least - 1):
            assert not aborted
            left[0] -= taken
            plane.on_loop(lambda: connection.overdue(plane.front.loop.time()))
        assert aborted


def test_an_idle_client_that_leaves_the_end_of_its_answer(listen: Any, connect: Any) -> None:
    """Too little for the transport to ask for a pause, and yet it is not held for ever."""
    with listen(many, limits=Limits(idle_s=0.3, linger_s=0.3)) as plane, connect(plane) as client:
        client.send(GET % 10)
        settled(plane, lambda front: front.replies[200] == 1)
        connection = plane.on_loop(lambda: next(iter(plane.front.connections)))
        plane.on_loop(lambda: setattr(connection, "transport", Stubborn(connection.transport)))
        settled(plane, lambda front: not front.connections)


class Stubborn:
    """A transport with something left to write, which therefore does not close."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.closing = inner, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def close(self) -> None:
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def can_write_eof(self) -> bool:  # as of TLS
        return False


def test_what_a_connection_has_to_add() -> None:
    assert Patience.__abstractmethods__ == {"drain", "advance", "_refuse"}
    with pytest.raises(TypeError, match="abstract"):
        Patience()  # type: ignore[abstract]
    assert not Connection.__abstractmethods__
