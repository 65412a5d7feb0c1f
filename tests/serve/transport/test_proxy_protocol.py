"""Connections of load balancers that begin with a PROXY header: what is read, and what is refused."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from manual_clock import ManualClock
from rows import rows
from waiting import wait_until

from ox.clock import Clock
from ox.errors import ArgumentError
from ox.serve import ModelConfig, RequestLimits, Server
from ox.serve.transport.proxy_header import SIGNATURE, ProxyHeaderError, crc32c, parse_block, parse_line

ONE = ModelConfig(device="cpu", instances=1)
GET = b"GET /v2 HTTP/1.1\r\nhost: x\r\n\r\n"


def block(family: int, addresses: bytes = b"", command: int = 0x21, extensions: bytes = b"") -> bytes:
    """A header of version 2."""
    return SIGNATURE + struct.pack("!BBH", command, family, len(addresses + extensions)) + addresses + extensions


def ipv4(source: str = "203.0.113.7") -> bytes:
    return socket.inet_aton(source) + socket.inet_aton("192.0.2.1") + struct.pack("!HH", 4711, 443)


def ipv6(source: str) -> bytes:
    sides = [socket.inet_pton(socket.AF_INET6, side) for side in (source, "2001:db8::1")]
    return b"".join(sides) + struct.pack("!HH", 4711, 443)


def checked(family: int, addresses: bytes, more: int = 0) -> bytes:
    """A header with a checksum, to which `more` is added, between two other extensions."""

    def header(checksum: int) -> bytes:
        extension = b"\x03\x00\x04" + checksum.to_bytes(4, "big")
        return block(family, addresses, extensions=EXTENSION + extension + EXTENSION)

    return header(crc32c(header(0)) + more)


EXTENSION = b"\x04\x00\x03abc"
GOOD = [
    (b"PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\r\n", "203.0.113.7"),
    (b"PROXY TCP6 2001:DB8::7 2001:db8::1 0 65535\r\n", "2001:db8::7"),
    (b"PROXY TCP6 ::ffff:203.0.113.7 ::1 1 2\r\n", "203.0.113.7"),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", None),
    (b"PROXY UNKNOWN " + b"a" * (107 - 16) + b"\r\n", None),
    (block(0x11, ipv4()), "203.0.113.7"),
    (block(0x11, ipv4(), extensions=EXTENSION + b"\xea\x00\x00"), "203.0.113.7"),
    (block(0x11, ipv4(), extensions=b"\x04\x0f\xf1" + bytes(4081)), "203.0.113.7"),
    (checked(0x11, ipv4()), "203.0.113.7"),
    (checked(0x21, ipv6("2001:db8::7")), "2001:db8::7"),
    (block(0x21, ipv6("2001:db8::7")), "2001:db8::7"),
    (block(0x21, ipv6("::ffff:203.0.113.7")), "203.0.113.7"),
    (block(0x31, bytes(216)), ""),
    (block(0x00), None),
    (block(0x00, b"whatever"), None),
    (block(0x00, command=0x20), None),
    (block(0x11, ipv4(), command=0x20), None),
]
BAD = [
    (GET, "does not begin with"),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00", "does not begin with"),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "does not begin with"),
    (b"proxy TCP4 203.0.113.7 192.0.2.1 4711 443\r\n", "does not begin with"),
    (b"\r\n\r\n\0\r\nQUIT\r", "does not begin with"),
    (b"PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\n", "carriage return"),
    (b"PROXY TCP4 203.0.113.7 192.0.2.1 4711 443 \r\n", "invalid"),
    (b"PROXY  TCP4 203.0.113.7 192.0.2.1 4711 443\r\n", "invalid"),
    (b"PROXY TCP4 203.0.113.7 192.0.2.1 4711\r\n", "invalid"),
    (b"PROXY TCP4 203.0.113.7 192.0.2.1 4711 65536\r\n", "invalid"),
    (b"PROXY TCP4 203.0.113.7 192.0.2.1 04711 443\r\n", "invalid"),
    (b"PROXY TCP4 203.0.113.07 192.0.2.1 4711 443\r\n", "invalid"),
    (b"PROXY TCP4 203.0.113 192.0.2.1 4711 443\r\n", "invalid"),
    (b"PROXY TCP4 2001:db8::7 2001:db8::1 4711 443\r\n", "invalid"),
    (b"PROXY TCP6 203.0.113.7 192.0.2.1 4711 443\r\n", "invalid"),
    (b"PROXY UDP4 203.0.113.7 192.0.2.1 4711 443\r\n", "invalid"),
    (b"PROXY UNKNOWNX\r\n", "invalid"),
    (b"PROXY UNKNOWN \x00\r\n", "invalid"),
    (b"PROXY UNKNOWN " + b"a" * (107 - 14), "longer than 107"),
    (block(0x11, ipv4(), command=0x11), "version"),
    (block(0x11, ipv4(), command=0x22), "version"),
    (block(0x12, ipv4()), "family"),
    (block(0x41, ipv4()), "family"),
    (block(0x01), "family"),
    (block(0x11, ipv4()[:-1]), "too short"),
    (block(0x21, ipv4()), "too short"),
    (block(0x31, bytes(215)), "too short"),
    (block(0x11, ipv4(), extensions=b"\x04\x00"), "cut off"),
    (block(0x11, ipv4(), extensions=b"\x04\x00\x02a"), "cut off"),
    (checked(0x11, ipv4(), more=1), "checksum of the PROXY header is wrong"),
    (checked(0x11, ipv4()).replace(b"abc", b"abd", 1), "checksum of the PROXY header is wrong"),
    (block(0x11, ipv4(), extensions=b"\x03\x00\x03abc"), "one checksum, of four bytes"),
    (block(0x11, ipv4(), extensions=b"\x03\x00\x04abcd" * 2), "one checksum, of four bytes"),
    (SIGNATURE + struct.pack("!BBH", 0x21, 0x11, 4097), "larger than 4096"),
]


@rows(("header", "client"), GOOD, ids=lambda value: repr(value)[:60])
def test_headers(header: bytes, client: str | None) -> None:
    if header.startswith(SIGNATURE):
        assert parse_block(header[12], header[13], header[16:]) == client
        with pytest.raises(ProxyHeaderError):
            parse_block(header[12] + 0x10, header[13], header[16:])
    else:
        assert parse_line(header) == client


def test_the_checksum() -> None:
    """The check value of CRC-32C, and those of RFC 3720, B.4."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA and crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def balanced(request: Any, mlp: Path) -> Iterator[Server]:
    clock = Clock()
    if request.param == "asyncio":
        clock.new_event_loop = asyncio.new_event_loop  # type: ignore[method-assign]
    limits = RequestLimits(linger_s=0.2)
    settings: dict[str, Any] = {"proxy_protocol": True, "grpc_port": 0, "access_log": True}
    with Server([mlp], options=ONE, limits=limits, clock=clock, **settings) as running:
        yield running


@pytest.fixture
def peers(caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    """Returns the addresses in the access log."""
    logger = logging.getLogger("ox.serve")
    logger.addHandler(caplog.handler)
    caplog.clear()
    yield lambda: [record.fields["peer"] for record in caplog.records if record.msg == "request"]  # type: ignore[attr-defined]
    logger.removeHandler(caplog.handler)


@rows(("header", "client"), GOOD, ids=lambda value: repr(value)[:60])
def test_requests_follow_the_header(
    balanced: Server, connect: Any, peers: Any, header: bytes, client: str | None
) -> None:
    before = len(peers())
    with connect(balanced) as caller:
        caller.send(header + GET)
        assert caller.reply()[0] == 200
        assert caller.ask("GET", "/v2")[0] == 200
    wait_until(lambda: len(peers()) == before + 2)
    assert peers()[before:] == ["127.0.0.1" if client is None else client] * 2


@rows("header", [GOOD[0][0], GOOD[6][0], GOOD[3][0]], ids=lambda value: repr(value)[:30])
def test_byte_by_byte(balanced: Server, connect: Any, header: bytes) -> None:
    with connect(balanced) as caller:
        caller.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in header + GET:
            caller.send(bytes([number]))
        assert caller.reply()[0] == 200


@rows(("header", "reason"), BAD, ids=lambda value: repr(value)[:60])
def test_bad_headers(
    balanced: Server, connect: Any, caplog: pytest.LogCaptureFixture, header: bytes, reason: str
) -> None:
    caplog.clear()
    with connect(balanced) as caller:
        caller.send(header + GET)
        assert caller.closed()
    wait_until(lambda: [record for record in caplog.records if reason in record.getMessage()])
    (record,) = caplog.records
    assert record.levelname == "WARNING" and "127.0.0.1 was closed" in record.getMessage()


def test_who_leaves_early(balanced: Server, connect: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A probe of the port is silent; half a header is not."""
    caplog.clear()
    for begin in (b"", b"PROXY TCP4", SIGNATURE, b"PROXY UNKNOWN "):
        with connect(balanced) as caller:
            caller.send(begin)
            caller.socket.shutdown(socket.SHUT_WR)
            assert caller.closed()
    wait_until(lambda: len(caplog.records) == 3)
    assert all("incomplete" in record.getMessage() for record in caplog.records)


def test_grpc_and_http_2(balanced: Server) -> None:
    """On the shared port, and on the port of gRPC alone."""
    import h2.config
    import h2.connection
    import h2.events

    for port in (balanced.port, balanced.grpc_port):
        with socket.create_connection((balanced.host, port or 0), timeout=300) as link:
            wire = h2.connection.H2Connection(h2.config.H2Configuration())
            wire.initiate_connection()
            fields = [(":method", "GET"), (":path", "/v2/health/live"), (":scheme", "http"), (":authority", "x")]
            wire.send_headers(1, fields, end_stream=True)
            link.sendall(GOOD[6][0] + wire.data_to_send())
            body = b""
            while b"live" not in body:
                for event in wire.receive_data(link.recv(1 << 16)):
                    if isinstance(event, h2.events.DataReceived):
                        body += event.data
            assert json.loads(body) == {"live": True}


def test_a_header_that_never_ends(mlp: Path, connect: Any, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    with Server([mlp], options=ONE, proxy_protocol=True, clock=clock) as server, clock, connect(server) as caller:
        caller.send(b"PROXY TCP4 203")
        (listener,) = server._listeners[0]._servers
        wait_until(lambda: listener._handshakes)  # type: ignore[union-attr]
        clock.advance(server.limits.request_s + 1)
        assert caller.closed()
    assert "no PROXY header in time" in caplog.text


def test_too_many_of_them(mlp: Path, connect: Any) -> None:
    limits = RequestLimits(connections=2)
    with Server([mlp], options=ONE, proxy_protocol=True, limits=limits) as server:
        waiting = [connect(server) for _ in range(2)]
        (listener,) = server._listeners[0]._servers
        wait_until(lambda: len(listener._handshakes) == 2)  # type: ignore[union-attr]
        with connect(server) as late:
            assert late.closed()
        waiting[0].send(GOOD[0][0] + GET)
        assert waiting[0].reply()[0] == 200
    assert waiting[1].closed()  # by the end of the server
    for each in waiting:
        each.socket.close()


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix domain sockets here")
def test_a_unix_domain_socket(mlp: Path, peers: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, Any] = {"port": None, "uds": f"{folder}/s", "proxy_protocol": True, "access_log": True}
        with Server([mlp], options=ONE, **settings), socket.socket(socket.AF_UNIX) as link:
            link.settimeout(300)
            link.connect(f"{folder}/s")
            link.sendall(GOOD[0][0] + GET)
            assert link.recv(1 << 16).startswith(b"HTTP/1.1 200")
    assert peers() == ["203.0.113.7"]


def test_grpcio_reads_none() -> None:
    with pytest.raises(ArgumentError, match=r"grpcio does not read PROXY headers(.|\n)*--grpc own or off"):
        Server(["model.onnx"], proxy_protocol=True, grpc="grpcio")
