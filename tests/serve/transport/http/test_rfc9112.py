"""RFC 9112, message syntax: what is a request, where it ends, and what is neither.

Every case is sent together with a second request. Where the first is refused, the second must not be answered: that is
what smuggling is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from rows import rows

from ox.serve import RequestLimits

HOST = b"host: x\r\n"
GET = b"GET /a HTTP/1.1\r\n" + HOST
POST = b"POST /b HTTP/1.1\r\n" + HOST
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nhost: y\r\n\r\n"


@pytest.fixture(scope="module")
def plane(listen: Any) -> Iterator[Any]:
    with listen(limits=RequestLimits(header_bytes=4096, header_count=30, body=100_000, linger_s=0.2)) as running:
        yield running


def length(value: bytes, body: bytes = b"hello") -> bytes:
    return POST + b"content-length: " + value + b"\r\n\r\n" + body


def encoding(value: bytes) -> bytes:
    return POST + b"Transfer-Encoding: " + value + b"\r\n\r\n0\r\n\r\n"


REFUSED = {
    "a bare LF ends the request line": (b"GET / HTTP/1.1\nhost: x\n\n", 400),
    "a bare LF ends a header": (b"GET / HTTP/1.1\r\nhost: x\n\r\n", 400),
    "a bare CR in a value": (GET + b"a: b\rc\r\n\r\n", 400),
    "CR CR LF": (GET + b"a: b\r\r\n\r\n", 400),
    "NUL in a value": (GET + b"a: b\0c\r\n\r\n", 400),
    "a control character in a value": (GET + b"a: b\x01c\r\n\r\n", 400),
    "DEL in a value": (GET + b"a: b\x7fc\r\n\r\n", 400),
    "obs-fold with a space": (GET + b"a: b\r\n c\r\n\r\n", 400),
    "obs-fold with a tab": (GET + b"a: b\r\n\tc\r\n\r\n", 400),
    "obs-fold of the length": (POST + b"content-length:\r\n 5\r\n\r\nhello", 400),
    "white space before the first header": (b"GET / HTTP/1.1\r\n host: x\r\n\r\n", 400),
    "white space before the colon": (POST + b"content-length : 5\r\n\r\nhello", 400),
    "white space in a name": (GET + b"a b: c\r\n\r\n", 400),
    "NUL in a name": (POST + b"\0content-length: 5\r\n\r\nhello", 400),
    "a parenthesis in a name": (GET + b"a(b: c\r\n\r\n", 400),
    "a name beyond ASCII": (GET + b"a\xc3\xa9: c\r\n\r\n", 400),
    "a header without a name": (GET + b": c\r\n\r\n", 400),
    "a header without a colon": (GET + b"abc\r\n\r\n", 400),
    "length with a sign": (length(b"+5"), 400),
    "length below zero": (length(b"-5"), 400),
    "length in hexadecimal": (length(b"0x5"), 400),
    "length with an underscore": (length(b"1_0"), 400),
    "length with a fraction": (length(b"5.0"), 400),
    "length of two words": (length(b"5 5"), 400),
    "length in superscript": (length(b"\xb2"), 400),
    "length of nothing": (length(b""), 400),
    "length as a list": (length(b"5, 5"), 400),
    "length beyond 64 bits": (length(b"18446744073709551621"), 400),
    "two lengths": (POST + b"content-length: 5\r\ncontent-length: 0\r\n\r\nhello", 400),
    "length and encoding": (POST + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "encoding and length": (POST + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n", 400),
    "two encodings": (POST + b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n", 400),
    "chunked twice": (encoding(b"chunked, chunked"), 400),
    "chunked is not last": (encoding(b"chunked, gzip"), 400),
    "gzip below chunked": (encoding(b"gzip, chunked"), 501),
    "identity": (encoding(b"identity"), 501),
    "a name like chunked": (encoding(b"xchunked"), 501),
    "chunked in quotes": (encoding(b'"chunked"'), 501),
    "chunked with a parameter": (encoding(b"chunked;a=b"), 501),
    "a vertical tab before chunked": (encoding(b"\x0bchunked"), 400),
    "no encoding": (encoding(b""), 400),
    "an encoding in HTTP/1.0": (b"POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "a bare LF after a chunk's size": (CHUNKED + b"3\nabc\r\n0\r\n\r\n", 400),
    "a bare LF after an extension": (CHUNKED + b"3;a=b\nabc\r\n0\r\n\r\n", 400),
    "a bare LF after a chunk": (CHUNKED + b"3\r\nabc\n0\r\n\r\n", 400),
    "a bare LF at the end": (CHUNKED + b"3\r\nabc\r\n0\n\n", 400),
    "a chunk that is longer": (CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n", 400),
    "a chunk without a size": (CHUNKED + b"\r\nabc\r\n0\r\n\r\n", 400),
    "a chunk's size with a sign": (CHUNKED + b"+3\r\nabc\r\n0\r\n\r\n", 400),
    "a chunk's size below zero": (CHUNKED + b"-3\r\nabc\r\n0\r\n\r\n", 400),
    "a chunk's size with 0x": (CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n", 400),
    "a chunk's size with an underscore": (CHUNKED + b"0_3\r\nabc\r\n0\r\n\r\n", 400),
    "a chunk's size beyond 64 bits": (CHUNKED + b"10000000000000003\r\nabc\r\n0\r\n\r\n", 400),
    "a length in the trailer": (CHUNKED + b"0\r\ncontent-length: 5\r\n\r\nhello", 400),
    "an encoding in the trailer": (CHUNKED + b"0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "no host": (b"GET / HTTP/1.1\r\na: b\r\n\r\n", 400),
    "two hosts": (GET + b"host: y\r\n\r\n", 400),
    "a host with a space": (b"GET / HTTP/1.1\r\nhost: a b\r\n\r\n", 400),
    "a host with a path": (b"GET / HTTP/1.1\r\nhost: a/b\r\n\r\n", 400),
    "a host with a user": (b"GET / HTTP/1.1\r\nhost: a@b\r\n\r\n", 400),
    "a host with a word for a port": (b"GET / HTTP/1.1\r\nhost: a:b\r\n\r\n", 400),
    "HTTP/0.9": (b"GET /\r\n\r\n", 505),
    "HTTP/2.0 in the words of 1.1": (b"GET / HTTP/2.0\r\nhost: x\r\n\r\n", 505),
    "HTTP/1.2": (b"GET / HTTP/1.2\r\nhost: x\r\n\r\n", 400),
    "HTTP/1.10": (b"GET / HTTP/1.10\r\nhost: x\r\n\r\n", 400),
    "http/1.1": (b"GET / http/1.1\r\nhost: x\r\n\r\n", 400),
    "a method that nobody knows": (b"FROB / HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    "a method in lower case": (b"get / HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    "a tab after the method": (b"GET\t/ HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    "a space in the target": (b"GET /a b HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    "NUL in the target": (b"GET /a\0b HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    "a target beyond ASCII": (b"GET /a\xffb HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    "an expectation that nobody knows": (POST + b"expect: 200-ok\r\ncontent-length: 5\r\n\r\nhello", 417),
}  # fmt: skip


def cut(data: bytes, step: int) -> list[bytes]:
    return [data[at : at + step] for at in range(0, len(data), step)]


@rows("step", [10_000, 1])
@rows("name", REFUSED)
def test_refused_and_nothing_smuggled(plane: Any, connect: Any, name: str, step: int) -> None:
    data, expected = REFUSED[name]
    with connect(plane) as client:
        try:
            for piece in cut(data + SMUGGLED, step):
                client.send(piece)
        except OSError:  # refused before everything was sent
            pass
        status, headers, body = client.reply()
        assert status == expected and headers["connection"] == "close" and "error" in json.loads(body)
        assert client.closed()


ACCEPTED = {
    "a chunk with an extension": (CHUNKED + b"3;a=b\r\nabc\r\n0;last\r\n\r\n", "abc"),
    "a chunk with a quoted extension": (CHUNKED + b'3;a="b; c"\r\nabc\r\n0\r\n\r\n', "abc"),
    "zeros before a size": (CHUNKED + b"0003\r\nabc\r\n000\r\n\r\n", "abc"),
    "a size in capitals": (CHUNKED + b"A\r\n0123456789\r\n0\r\n\r\n", "0123456789"),
    "a trailer": (CHUNKED + b"3\r\nabc\r\n0\r\nx-checksum: 1\r\nhost: z\r\n\r\n", "abc"),
    "no chunk but the last": (CHUNKED + b"0\r\n\r\n", ""),
    "capitals": (POST + b"TRANSFER-ENCODING: CHUNKED\r\n\r\n2\r\nhi\r\n0\r\n\r\n", "hi"),
    "white space around an encoding": (POST + b"transfer-encoding:\t chunked  \r\n\r\n2\r\nhi\r\n0\r\n\r\n", "hi"),
    "white space around a length": (length(b" 5\t "), "hello"),
    "zeros before a length": (length(b"0005"), "hello"),
    "an underscore in a name": (POST + b"transfer_encoding: chunked\r\ncontent-length: 2\r\n\r\nhi", "hi"),
    "a body that comes with GET": (GET + b"content-length: 2\r\n\r\nhi", "hi"),
    "a tab in a value": (GET + b"a: b\tc\r\n\r\n", ""),
    "bytes beyond ASCII in a value": (GET + b"a: \xc3\xa9\xff\r\n\r\n", ""),
    "blank lines before": (b"\r\n\r\n" + GET + b"\r\n", ""),
    "an absolute target": (b"GET http://x:80/a?b=c HTTP/1.1\r\n" + HOST + b"\r\n", ""),
    "an empty host": (b"GET /a HTTP/1.1\r\nhost:\r\n\r\n", ""),
    "a host with a port": (b"GET /a HTTP/1.1\r\nhost: a-b.example:8000\r\n\r\n", ""),
    "an IPv6 host": (b"GET /a HTTP/1.1\r\nhost: [::1]:8000\r\n\r\n", ""),
    "HTTP/1.0 that stays": (b"GET /a HTTP/1.0\r\nconnection: keep-alive\r\n\r\n", ""),
}  # fmt: skip


@rows("step", [10_000, 1])
@rows("name", ACCEPTED)
def test_accepted_and_the_next_request_too(plane: Any, connect: Any, name: str, step: int) -> None:
    data, body = ACCEPTED[name]
    with connect(plane) as client:
        for piece in cut(data + GET + b"\r\n", step):
            client.send(piece)
        status, _, answer = client.reply()
        assert status == 200 and json.loads(answer)["body"] == body
        assert json.loads(client.reply()[2])["target"] == "/a"


def test_headers_as_they_are_meant(plane: Any, connect: Any) -> None:
    with connect(plane) as client:
        client.send(GET + b"A:b \t\r\na: c\r\nE:\r\nX-Y:  z  z\r\n\r\n")
        assert json.loads(client.reply()[2])["headers"] == {"host": "x", "a": "b, c", "e": "", "x-y": "z  z"}


def test_a_trailer_changes_nothing(plane: Any, connect: Any) -> None:
    with connect(plane) as client:
        client.send(CHUNKED + b"0\r\nhost: evil\r\nauthorization: Bearer x\r\nx: y\r\n\r\n")
        assert json.loads(client.reply()[2])["headers"] == {"host": "x", "transfer-encoding": "chunked"}


@rows(
    ("version", "connection", "stays"),
    [
        (b"1.1", None, True),
        (b"1.1", b"keep-alive", True),
        (b"1.1", b"close", False),
        (b"1.1", b"Close", False),
        (b"1.1", b"x, close", False),
        (b"1.1", b"keep-alive\r\nconnection: close", False),
        (b"1.0", None, False),
        (b"1.0", b"keep-alive", True),
        (b"1.0", b"Keep-Alive, x", True),
        (b"1.0", b"close", False),
        (b"1.0", b"keep-alive, close", False),
        (b"1.0", b"Close,Keep-Alive", False),
        (b"1.0", b"x, keep-alive", True),
        (b"1.0", b"x\r\nproxy-connection: keep-alive", False),  # which only proxies of old have sent
        (b"1.1", b"keep-alive, close", False),
    ],
)
def test_who_stays_connected(plane: Any, connect: Any, version: bytes, connection: bytes | None, stays: bool) -> None:
    line = b"" if connection is None else b"connection: %s\r\n" % connection
    with connect(plane) as client:
        client.send(b"GET /a HTTP/%s\r\n%s%s\r\n" % (version, HOST, line) + GET + b"\r\n")
        _, headers, _ = client.reply()
        kept = "keep-alive" if version == b"1.0" else None  # clients of HTTP/1.0 wait for the end unless told so
        assert headers.get("connection") == (kept if stays else "close")
        if stays:
            assert client.reply()[0] == 200
        else:
            assert client.closed()


@pytest.mark.parametrize("line", [b"Connection: Keep-Alive", b"connection: keep-alive\r\nkeep-alive: timeout=5, max=9"])
def test_http_1_0_is_told_that_it_stays(plane: Any, connect: Any, line: bytes) -> None:
    head = b"POST /a HTTP/1.0\r\n%s\r\ncontent-length: 2\r\n\r\n" % line
    with connect(plane) as client:
        for body in (b"01", b"23", b"45"):  # heads that came before are known by their bytes
            client.send(head + body)
            _, headers, answer = client.reply()
            assert headers["connection"] == "keep-alive" and json.loads(answer)["body"] == body.decode()
        client.send(b"HEAD /a HTTP/1.0\r\n%s\r\n\r\n" % line)
        assert b"connection: keep-alive\r\n" in client.socket.recv(65536)
        client.send(GET + b"\r\n")
        assert "connection" not in client.reply()[1]
        client.send(b"GET /a HTTP/1.0\r\n\r\n")
        assert client.reply()[1]["connection"] == "close" and client.closed()


@pytest.mark.parametrize("options", [b"keep-alive, close", b"close, Keep-Alive", b"keep-alive\r\nconnection: close"])
def test_http_1_0_that_asks_for_both_gets_one_answer(plane: Any, connect: Any, options: bytes) -> None:
    with connect(plane) as client:
        client.send(b"GET /a HTTP/1.0\r\nconnection: %s\r\n\r\n" % options)
        head = client.socket.recv(65536).partition(b"\r\n\r\n")[0].lower()
        assert [line for line in head.split(b"\r\n") if line.startswith(b"connection:")] == [b"connection: close"]
        assert client.closed()


def test_http_1_0_is_closed_while_draining(plane: Any, connect: Any) -> None:
    with connect(plane) as client:
        plane.on_loop(lambda: setattr(plane.listener_state, "draining", True))
        try:
            client.send(b"GET /a HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
            assert client.reply()[1]["connection"] == "close" and client.closed()
        finally:
            plane.on_loop(lambda: setattr(plane.listener_state, "draining", False))


UPGRADE = b"POST /a HTTP/1.1\r\nhost: x\r\nx: y\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n"


@rows(
    "body",
    [
        b"content-length: 5\r\n\r\nhello",
        b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"content-length: 5\r\nexpect: 100-continue\r\n\r\nhello",
    ],
)
@rows("step", [1, 7, 1000])
def test_an_upgrade_that_is_not_taken_keeps_its_body(plane: Any, connect: Any, body: bytes, step: int) -> None:
    data = UPGRADE + body
    with connect(plane) as client:
        for at in range(0, len(data), step):
            client.send(data[at : at + step])
        status, headers, answer = client.reply()
        if status == 100:
            status, headers, answer = client.reply()
        told = json.loads(answer)
        assert (status, told["method"], told["target"], told["body"]) == (200, "POST", "/a", "hello")
        assert told["headers"]["x"] == "y" and "connection" not in headers
        client.send(data.replace(b"/a", b"/b").replace(b"hello", b"again"))  # the connection is kept
        while (reply := client.reply())[0] == 100:
            pass
        told = json.loads(reply[2])
        assert (reply[0], told["target"], told["body"]) == (200, "/b", "again")


@rows("end", [b"\r\n", b"content-length: 1\r\n\r\nx"])
def test_many_upgrades_at_once(plane: Any, connect: Any, end: bytes) -> None:
    requests = b"".join(UPGRADE.replace(b"/a", b"/%d" % number) + end for number in range(2000))
    with connect(plane) as client:
        client.send(requests)
        for number in range(2000):
            assert json.loads(client.reply()[2])["target"] == f"/{number}"


@rows("more", [b"connection: close\r\n", b""])
def test_nothing_is_read_after_the_last_upgrade(plane: Any, connect: Any, more: bytes) -> None:
    """A client that closes, and CONNECT, after which a client may send anything."""
    head = UPGRADE.replace(b"POST /a", b"CONNECT x:1") if not more else UPGRADE.replace(b"Upgrade,", b"close, Upgrade,")
    with connect(plane) as client:
        client.send(head + b"\r\n" + GET + b"\r\n")
        assert client.reply()[1]["connection"] == "close" and client.closed()


@pytest.mark.parametrize(
    ("more", "status"),
    [(b"content-length: x\r\n", 400), (b"content-length: 99999999999\r\n", 413), (b"transfer-encoding: gzip\r\n", 501)],
)
def test_an_upgrade_is_held_to_the_same_rules(plane: Any, connect: Any, more: bytes, status: int) -> None:
    with connect(plane) as client:
        client.send(UPGRADE + more + b"\r\n")
        assert client.reply()[0] == status and client.closed()


def test_two_versions_on_one_connection(plane: Any, connect: Any) -> None:
    with connect(plane) as client:
        client.send(GET + b"\r\n" + b"GET /\r\n\r\n")
        assert client.reply()[0] == 200
        assert client.reply()[0] == 505
        assert client.closed()


def test_no_host_after_a_version_that_needs_none(plane: Any, connect: Any) -> None:
    with connect(plane) as client:
        client.send(b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
        assert client.reply()[0] == 200
        client.send(b"GET / HTTP/1.1\r\n\r\n")
        assert client.reply()[0] == 400
