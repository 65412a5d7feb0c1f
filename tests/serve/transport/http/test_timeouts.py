"""Clients that do not read what they asked for: what is held for them is bounded, and nobody else pays for it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import wait_until

from ox.serve import RequestLimits
from ox.serve.config.request_limits import MIB, SLOWEST
from ox.serve.response_memory import Buffers
from ox.serve.transport.http import Exchange
from ox.serve.transport.http.connection import Connection
from ox.serve.transport.http.incoming_request import IncomingRequest
from ox.serve.transport.http.sender import Sender
from ox.serve.transport.http.timeouts import Timeouts

GET = b"GET /%d HTTP/1.1\r\nhost: x\r\n\r\n"


def many(exchange: Exchange) -> None:
    """As many bytes as the path says."""
    exchange.reply(200, bytes(int(exchange.target[1:])))


def settled(plane: Any, wanted: Any) -> None:
    """Waits until the listener is as wanted; fails by the time limit of all tests, if ever."""
    wait_until(lambda: plane.on_loop(lambda: wanted(plane.listener_state)))  # the system's buffers fill and drain


@pytest.mark.parametrize("clients", [1, 12])
def test_unread_answers_are_bounded_together(listen: Any, connect: Any, clients: int) -> None:
    limits = RequestLimits(unread=12 * MIB)
    with listen(many, limits=limits) as plane, ExitStack() as stack, connect(plane) as other:
        for _ in range(clients):
            client = stack.enter_context(connect(plane))
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.send(GET % (96 * MIB // clients))
            other.send(GET % MIB)  # one who reads
            assert len(other.reply()[2]) == MIB
        settled(
            plane,
            lambda listener_state: (
                len(listener_state.connections) <= clients and 0 <= listener_state.unread <= 12 * MIB
            ),
        )
        other.send(GET % MIB)
        assert len(other.reply()[2]) == MIB
        stack.close()
        settled(plane, lambda listener_state: listener_state.unread == 0 and len(listener_state.connections) == 1)


def test_large_answers_that_wait_for_their_clients_abort_nobody(listen: Any, connect: Any) -> None:
    """What the sockets do not take of them counts as response memory."""

    def large(exchange: Exchange) -> None:
        exchange.reply(200, Buffers([memoryview(bytearray(int(exchange.target[1:])))]))

    with listen(large, limits=RequestLimits(unread=MIB)) as plane, ExitStack() as stack:
        clients = [stack.enter_context(connect(plane)) for _ in range(12)]
        for client in clients:
            client.send(GET % (16 * MIB))
        settled(plane, lambda state: sum(connection.sender.paused for connection in state.connections) == 12)
        assert plane.on_loop(lambda: plane.listener_state.unread) == 0
        assert plane.on_loop(lambda: plane.listener_state.response_memory.used) > 0
        for client in clients:
            while b"\r\n\r\n" not in client.buffer:
                client._more()
            got = len(client.buffer.partition(b"\r\n\r\n")[2])
            while got < 16 * MIB:
                got += len(client.socket.recv(MIB))
        settled(plane, lambda state: state.response_memory.used == 0)
        assert plane.listener_state.slow_clients == 0


def test_answers_that_wait_for_their_turn_count(listen: Any, connect: Any) -> None:
    got: list[Exchange] = []
    with listen(got.append, limits=RequestLimits(unread=2 * MIB)) as plane, connect(plane) as client:
        client.send(GET % 1 * 4)
        settled(plane, lambda listener_state: len(got) == 4)
        plane.on_loop(lambda: got[1].reply(200, bytes(MIB)))
        assert MIB < plane.on_loop(lambda: plane.listener_state.unread) < MIB + 1000
        plane.on_loop(lambda: got[0].reply(200, b""))
        assert client.reply()[0] == 200 and len(client.reply()[2]) == MIB
        settled(plane, lambda listener_state: listener_state.unread == 0)
        plane.on_loop(lambda: got[3].reply(200, bytes(3 * MIB)))  # the third is still worked on
        assert client.closed()
        settled(plane, lambda listener_state: listener_state.unread == 0 and not listener_state.connections)


def test_a_byte_now_and_then_is_not_reading(listen: Any) -> None:
    with listen(many) as plane:
        least = int(SLOWEST * plane.listener_state.limits.write_s)
        left, aborted = [10 * least], []
        connection = plane.on_loop(lambda: Connection(plane.listener_state))
        connection.transport = connection.sender.transport = SimpleNamespace(
            get_write_buffer_size=lambda: left[0], abort=lambda: aborted.append(left[0])
        )
        plane.on_loop(connection.pause_writing)
        for taken in (least, least, least - 1):
            assert not aborted
            left[0] -= taken
            plane.on_loop(lambda: connection.on_deadline(plane.listener_state.loop.time()))
        assert aborted


def test_an_idle_client_that_leaves_the_end_of_its_answer(listen: Any, connect: Any) -> None:
    """Too little for the transport to ask for a pause, and yet it is not held for ever."""
    with listen(many, limits=RequestLimits(idle_s=0.3, linger_s=0.3)) as plane, connect(plane) as client:
        client.send(GET % 10)
        settled(plane, lambda listener_state: listener_state.replies[200] == 1)
        connection = plane.on_loop(lambda: next(iter(plane.listener_state.connections)))
        plane.on_loop(lambda: setattr(connection, "transport", Stubborn(connection.transport)))
        settled(plane, lambda listener_state: not listener_state.connections)


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


def test_a_connection_is_put_together_of_its_parts() -> None:
    """Each part is a class of its own: none is a base of another."""
    assert Connection.__bases__ == (asyncio.Protocol,)
    assert Sender.__bases__ == Timeouts.__bases__ == IncomingRequest.__bases__ == (object,)
