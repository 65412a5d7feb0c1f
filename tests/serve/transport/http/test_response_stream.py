"""Responses that are sent in parts: chunked, in order, and with a client that reads slowly or leaves."""

from __future__ import annotations

import http.client
import socket
import threading
from typing import Any

import pytest
from waiting import wait_until

from ox.serve.transport.http import Exchange
from ox.serve.transport.http.response_stream import HIGH_WATER, LOWAT, ResponseStream


class Producer:
    """Begins a stream for each request to /stream; the test writes to it."""

    def __init__(self) -> None:
        self.streams: list[ResponseStream] = []
        self.begun, self.cancelled, self.flows = threading.Semaphore(0), threading.Event(), list[bool]()

    def __call__(self, exchange: Exchange) -> None:
        if exchange.target != b"/stream":
            exchange.reply(200, b'"whole"')
            return
        exchange.cancel_at_eof()
        stream = exchange.stream_response(200, b"text/event-stream", b"x-extra: 1\r\n")
        stream.on_cancel, stream.on_flow = self.cancelled.set, self.flows.append
        self.streams.append(stream)
        self.begun.release()


@pytest.fixture
def producer() -> Producer:
    return Producer()


def get(port: int) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/stream", b"x" * 1000)
    return connection


def test_parts_arrive_as_they_are_written(listen: Any, producer: Producer) -> None:
    with listen(producer) as plane:
        connection = get(plane.port)
        assert producer.begun.acquire(timeout=60)
        stream = producer.streams[0]
        plane.on_loop(lambda: stream.write(b"one"))
        response = connection.getresponse()
        assert response.getheader("transfer-encoding") == "chunked" and response.getheader("x-extra") == "1"
        assert response.read(3) == b"one"
        plane.on_loop(lambda: (stream.write(b"two"), stream.write(b"three"), stream.end()))
        assert response.read() == b"twothree"
        assert plane.listener_state.buffered == 0 and plane.listener_state.replies == {200: 1}
        connection.request("GET", "/other")  # the connection stays open
        assert connection.getresponse().read() == b'"whole"'
        assert not producer.cancelled.is_set()
        connection.close()


def test_http_1_0_has_no_chunks(listen: Any, producer: Producer) -> None:
    with listen(producer) as plane, socket.create_connection(("127.0.0.1", plane.port), timeout=60) as client:
        client.sendall(b"GET /stream HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
        assert producer.begun.acquire(timeout=60)
        plane.on_loop(lambda: (producer.streams[0].write(b"all"), producer.streams[0].end()))
        received = b"".join(iter(lambda: client.recv(1000), b""))  # up to the end of the connection
        head, _, body = received.partition(b"\r\n\r\n")
        assert body == b"all" and b"chunked" not in head and b"connection: close" in head


def test_a_pipelined_response_waits_for_the_stream(listen: Any, producer: Producer) -> None:
    with listen(producer) as plane, socket.create_connection(("127.0.0.1", plane.port), timeout=60) as client:
        client.sendall(b"GET /stream HTTP/1.1\r\nhost: a\r\n\r\n" * 2 + b"GET /other HTTP/1.1\r\nhost: a\r\n\r\n")
        assert producer.begun.acquire(timeout=60)
        first = producer.streams[0]
        plane.on_loop(lambda: first.write(b"1"))
        plane.on_loop(lambda: first.end())
        assert producer.begun.acquire(timeout=60)
        plane.on_loop(lambda: (producer.streams[1].write(b"2"), producer.streams[1].end()))
        received = b""
        while b'"whole"' not in received:
            received += client.recv(1000)
        assert (
            received.index(b"\r\n1\r\n0\r\n\r\n") < received.index(b"\r\n2\r\n0\r\n\r\n") < received.index(b'"whole"')
        )


def test_a_slow_reader_pauses_the_producer(listen: Any, producer: Producer) -> None:
    with listen(producer) as plane, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        client.settimeout(60)
        client.connect(("127.0.0.1", plane.port))
        client.sendall(b"GET /stream HTTP/1.1\r\nhost: a\r\n\r\n")
        assert producer.begun.acquire(timeout=60)
        stream, written = producer.streams[0], 0
        while True not in producer.flows:
            plane.on_loop(lambda: stream.write(b"x" * 10_000))
            written += 10_000
            # the system alone would take millions
            assert written < (100_000_000 if LOWAT is None else 1_000_000)
        transport = stream._connection.transport  # type: ignore[attr-defined]
        assert plane.on_loop(transport.get_write_buffer_size) <= HIGH_WATER + 20_000
        reader = threading.Thread(target=read_to_the_end, args=(client,))
        reader.start()
        # Another thread reads: the pause ends a little after the last of what was written has been read.
        wait_until(lambda: not producer.flows[-1])
        plane.on_loop(stream.end)
        reader.join(60)
        assert not reader.is_alive()


def read_to_the_end(client: socket.socket) -> None:
    data = b""
    while not data.endswith(b"0\r\n\r\n"):
        data = data[-10:] + client.recv(1 << 16)


@pytest.mark.parametrize("half", [True, False])
def test_a_client_that_leaves(listen: Any, producer: Producer, half: bool) -> None:
    with listen(producer) as plane:
        client = socket.create_connection(("127.0.0.1", plane.port), timeout=60)
        client.sendall(b"GET /stream HTTP/1.1\r\nhost: a\r\n\r\n")
        assert producer.begun.acquire(timeout=60)
        if half:
            client.shutdown(socket.SHUT_WR)
        else:
            client.close()
        assert producer.cancelled.wait(60)
        plane.on_loop(lambda: (producer.streams[0].write(b"late"), producer.streams[0].end()))  # is ignored
        client.close()
