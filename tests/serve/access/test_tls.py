"""TLS as clients meet it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import socket
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ox.clock import Clock
from ox.errors import ArgumentError
from ox.serve import ModelConfig, Server
from ox.serve.access import file_watcher

GET = b"GET /v2 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


@pytest.fixture(autouse=True)
def looked_at_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_watcher, "EVERY_S", 0.0)


@pytest.fixture
def serving(mlp: Path) -> Iterator[Callable[..., Server]]:
    running: list[Server] = []

    def start(**settings: Any) -> Server:
        running.append(Server([mlp], options=ModelConfig(instances=1), **settings).__enter__())
        return running[-1]

    yield start
    for server in running:
        server.__exit__(None, None, None)


def client_side(authority: Any, alpn: list[str] | None = None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=authority.file)
    if alpn:
        made.set_alpn_protocols(alpn)
    return made


def connected(server: Server, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection((server.host, server.port), timeout=300)
    try:
        return context.wrap_socket(plain, server_hostname="127.0.0.1")
    except BaseException:
        plain.close()
        raise


def asked(server: Server, context: ssl.SSLContext) -> tuple[bytes, str]:
    """The answer to GET, and the name in the server's certificate."""
    with connected(server, context) as link:
        link.sendall(GET)
        answer = b""
        while data := link.recv(4096):
            answer += data
        name = link.getpeercert()["subject"][0][0][1]  # type: ignore[index]
    return answer, name


def test_requests_and_versions(authority: Any, serving: Any) -> None:
    cert, key = authority.issue("one")
    server = serving(tls_cert=cert, tls_key=str(key))
    assert server.url.startswith("https://")
    context = client_side(authority)
    assert asked(server, context)[0].startswith(b"HTTP/1.1 200 OK")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert asked(server, context)[0].startswith(b"HTTP/1.1 200 OK")


def test_versions_before_1_2_are_refused(authority: Any, serving: Any) -> None:
    cert, key = authority.issue("one")
    server = serving(tls_cert=cert, tls_key=key)
    assert server._tls is not None and server._tls.minimum_version == ssl.TLSVersion.TLSv1_2
    with socket.create_connection((server.host, server.port), timeout=300) as link:
        # a ClientHello of TLS 1.1 with one cipher
        hello = b"\x03\x02" + bytes(32) + b"\x00" + b"\x00\x02\xc0\x13" + b"\x01\x00"
        message = b"\x01" + len(hello).to_bytes(3, "big") + hello
        link.sendall(b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message)
        assert link.recv(7)[:1] in (b"\x15", b"")  # an alert, or closed


@pytest.mark.parametrize(
    ("alpn", "grpc", "chosen"),
    [
        (["http/1.1"], "own", "http/1.1"),
        (["h2"], "own", "h2"),
        (["h2", "http/1.1"], "own", "http/1.1"),  # which answers every call
        (["h2", "http/1.1"], "off", "http/1.1"),
        (["spdy/1"], "own", None),
        (None, "own", None),
    ],
)
def test_what_is_spoken(authority: Any, serving: Any, alpn: list[str] | None, grpc: str, chosen: str | None) -> None:
    cert, key = authority.issue("one")
    with connected(serving(tls_cert=cert, tls_key=key, grpc=grpc), client_side(authority, alpn)) as link:
        assert link.selected_alpn_protocol() == chosen


def test_certificates_are_followed(authority: Any, serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(file_watcher.log, "error", lambda text, *values: said.append(text % values))
    cert, key = authority.issue("one")
    server, context = serving(tls_cert=cert, tls_key=key), client_side(authority)
    assert asked(server, context)[1] == "one"
    with connected(server, context) as early:
        other_cert, other_key = authority.issue("two")
        shutil.move(other_cert, cert)
        assert asked(server, context)[1] == "one"  # this certificate has another key: the old pair stays
        assert said[0].startswith("the certificates changed and cannot be used; the old ones stay")
        shutil.move(other_key, key)
        assert asked(server, context)[1] == "two"
        key.unlink()
        assert asked(server, context)[1] == "two"
        early.sendall(GET)
        assert early.recv(12) == b"HTTP/1.1 200"


def test_client_certificates(authority: Any, strangers: Any, serving: Any) -> None:
    cert, key = authority.issue("server")
    server = serving(tls_cert=cert, tls_key=key, tls_client_ca=authority.file)
    context = client_side(authority)
    context.load_cert_chain(*authority.issue("client"))
    assert asked(server, context)[0].startswith(b"HTTP/1.1 200 OK")
    for files in (None, strangers.issue("stranger")):
        context = client_side(authority)
        if files:
            context.load_cert_chain(*files)
        answer = b""
        try:
            with connected(server, context) as link:
                link.sendall(GET)
                answer = link.recv(4096)
        except (ssl.SSLError, ConnectionError):
            pass
        assert answer == b""


def test_plain_text_and_noise_on_a_tls_port(authority: Any, serving: Any, connect: Any) -> None:
    cert, key = authority.issue("one")
    server = serving(tls_cert=cert, tls_key=key)
    for noise in (GET, bytes(200), b"\x16\x03\x01\xff\xff" + bytes(100)):
        with connect(server) as client:
            client.send(noise)
            client.socket.shutdown(socket.SHUT_WR)
            answer = b""
            try:
                while data := client.socket.recv(4096):
                    answer += data
            except ConnectionResetError:
                pass
            assert b"HTTP" not in answer
    assert asked(server, client_side(authority))[0].startswith(b"HTTP/1.1 200 OK")


def test_files_that_cannot_be_used(authority: Any, mlp: Path, tmp_path: Path) -> None:
    cert, key = authority.issue("one")
    other = authority.issue("two")[1]
    locked = authority.issue("three", b"password")
    for pair, message in (
        ((tmp_path / "nope", key), r"does not exist(.|\n)*nope"),
        ((cert, other), "TLS cannot be set up"),
        ((key, cert), "TLS cannot be set up"),
        (locked, "the key has a password"),
    ):
        with pytest.raises(ArgumentError, match=message):
            Server([mlp], tls_cert=pair[0], tls_key=pair[1])
    with pytest.raises(ArgumentError, match="a certificate and its key"):
        Server([mlp], tls_cert=cert)
    with pytest.raises(ArgumentError, match="client certificates need TLS"):
        Server([mlp], tls_client_ca=cert)


@pytest.mark.parametrize("kind", ["uvloop", "asyncio"])
def test_tls_begins_after_a_proxy_header(
    authority: Any, serving: Any, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The header and the first bytes of TLS come in one segment."""
    cert, key = authority.issue("one")
    clock = Clock()
    if kind == "asyncio":
        clock.new_event_loop = asyncio.new_event_loop  # type: ignore[method-assign]
    caplog.set_level(logging.INFO, "ox.serve")
    settings: dict[str, Any] = {"tls_cert": cert, "tls_key": key, "proxy_protocol": True, "rate": 0.001}
    server = serving(**settings, clock=clock)
    for client, status in (("203.0.113.7", b"200"), ("203.0.113.8", b"200"), ("203.0.113.7", b"429")):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = client_side(authority).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        with socket.create_connection((server.host, server.port), timeout=300) as link:
            link.sendall(b"PROXY TCP4 %s 192.0.2.1 1 443\r\n" % client.encode() + outgoing.read())
            exchanged(tls.do_handshake, link, incoming, outgoing)
            tls.write(GET)
            link.sendall(outgoing.read())
            assert exchanged(partial(tls.read, 4096), link, incoming, outgoing).startswith(b"HTTP/1.1 " + status)
    with socket.create_connection((server.host, server.port), timeout=300) as link:
        link.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00" * 20)
        with contextlib.suppress(ConnectionResetError):
            assert link.recv(1) == b""
    assert "does not begin with a PROXY header" in caplog.text


def exchanged(call: Callable[[], Any], link: socket.socket, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> Any:
    """The result of a call on TLS in memory, with as many segments as it takes."""
    while True:
        try:
            result = call()
        except ssl.SSLWantReadError:
            link.sendall(outgoing.read())
            incoming.write(link.recv(1 << 16))
        else:
            link.sendall(outgoing.read())
            return result
