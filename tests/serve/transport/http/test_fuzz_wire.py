"""Bytes that nobody would send: what comes back is whole answers and nothing else, and the next client is served.

Requests are put together from good and bad parts, then bytes are flipped, lost, doubled and moved, and the whole is cut
anywhere. An independent parser (h11) reads the same bytes: where both accept a request, both must see the same one,
because two readers that disagree about where a request ends are what smuggling lives on.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ox.serve import RequestLimits

FEW = settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))

methods = st.sampled_from([b"GET", b"POST", b"HEAD", b"OPTIONS", b"PUT", b"CONNECT", b"get", b"G\0T", b"PRI", b""])
targets = st.sampled_from([b"/", b"/v2", b"*", b"http://x/y", b"/%0d%0aset-cookie:%20a", b"/a b", b"", b"/\xff"])
versions = st.sampled_from([b"HTTP/1.1"] * 6 + [b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2.0", b"HTTP/1.1 ", b"http/1.1", b""])
ends = st.sampled_from([b"\r\n"] * 20 + [b"\n", b"\r", b"\r\r\n", b"\n\r", b""])
names = st.sampled_from(
    [b"host", b"Host", b"content-length", b"Content-Length", b"transfer-encoding", b"connection", b"expect", b"upgrade",
     b"te", b"trailer", b"x", b"content-length ", b" x", b"", b"\0", b"x\r\ny", b"keep-alive", b"transfer-encoding\t"]
)  # fmt: skip
values = st.sampled_from(
    [b"x", b"0", b"3", b"5", b"05", b"+3", b"-1", b"3, 3", b"99999999999999999999", b"chunked", b"Chunked",
     b" chunked ", b"gzip, chunked", b"chunked, chunked", b"identity", b"close", b"keep-alive", b"upgrade",
     b"h2c", b"100-continue", b"", b"a\r\n b", b"\x00", b"\x0bchunked", b"\xe9", b"a" * 300]
)  # fmt: skip
headers = st.builds(
    lambda name, colon, value, end: name + colon + value + end,
    names, st.sampled_from([b": ", b":", b" : ", b"", b":\t"]), values, ends,
)  # fmt: skip
chunks = st.builds(
    lambda size, extension, end, data: size + extension + end + data,
    st.sampled_from([b"0", b"1", b"3", b"3", b"5", b"A", b"ffffffff", b"-1", b"0x3", b"", b"10000000000000003"]),
    st.sampled_from([b""] * 6 + [b";a=b", b';a="\r\n"', b" ", b";\n"]),
    ends,
    st.sampled_from([b"", b"abc\r\n", b"hello\r\n", b"abc", b"\r\n", b"abcde\r\n0\r\n\r\n"]),
)
good = st.sampled_from(
    [
        b"GET /g HTTP/1.1\r\nhost: x\r\n\r\n",
        b"POST /p HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc",
        b"POST /c HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nt: u\r\n\r\n",
        b"POST /e HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\nhi",
        b"GET /k HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",
    ]
)
odd = st.builds(
    lambda method, target, version, end, lines, last, body: (
        method + b" " + target + b" " + version + end + b"".join(lines) + last + b"".join(body)
    ),
    methods, targets, versions, ends, st.lists(headers, max_size=6), ends,
    st.lists(chunks | st.just(b"hello"), max_size=4),
)  # fmt: skip


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """A few requests, some good and some odd, with accidents."""
    data = b"".join(draw(st.lists(good | odd, min_size=1, max_size=4)))
    for _ in range(draw(st.integers(0, 4))):
        at, length = draw(st.integers(0, max(0, len(data) - 1))), draw(st.integers(0, 8))
        part = data[at : at + length]
        accident = draw(st.sampled_from(["lost", "doubled", "moved", "flipped", "new"]))
        if accident == "lost":
            data = data[:at] + data[at + length :]
        elif accident == "doubled":
            data = data[:at] + part + data[at:]
        elif accident == "moved":
            rest = data[:at] + data[at + length :]
            to = draw(st.integers(0, len(rest)))
            data = rest[:to] + part + rest[to:]
        elif accident == "flipped":
            data = data[:at] + bytes(byte ^ (1 << draw(st.integers(0, 7))) for byte in part) + data[at + length :]
        else:
            data = data[:at] + draw(st.binary(min_size=1, max_size=6)) + data[at:]
    return data


@pytest.fixture(scope="module")
def plane(listen: Any) -> Iterator[Any]:
    limits = RequestLimits(body=10_000, header_bytes=2000, header_count=20, url=500, linger_s=0.2)
    with listen(limits=limits) as running:
        yield running


def answers(plane: Any, data: bytes, cuts: list[int]) -> list[tuple[int, bytes]]:
    """All that the server says to these bytes and to the end of them, which must be whole answers."""
    with socket.create_connection((plane.host, plane.port), timeout=300) as link:
        received, cut_off = b"", False
        try:
            edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
            for begin, end in pairwise(edges):
                link.sendall(data[begin:end])
            link.shutdown(socket.SHUT_WR)
            while more := link.recv(1 << 16):
                received += more
        except OSError:  # closed while this side went on, in which case the end of what it said may be lost
            cut_off = True
    found = []
    while received:
        head, end, rest = received.partition(b"\r\n\r\n")
        if cut_off and not end:
            break
        assert end, received
        start, *lines = head.split(b"\r\n")
        version, status, _ = start.split(b" ", 2)
        fields = dict(line.split(b": ", 1) for line in lines)
        assert version == b"HTTP/1.1" and set(fields) <= {
            b"content-type",
            b"content-length",
            b"connection",
            b"retry-after",
        }
        length = int(fields.get(b"content-length", 0))
        if received.startswith(b"HTTP/1.1 200") and rest[:1] != b"{":  # to HEAD
            length = 0
        assert cut_off or len(rest) >= length, received
        found.append((int(status), rest[:length]))
        received = rest[length:]
    return found


def told(data: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """What h11 takes these bytes for: method, target and body of each whole request until it refuses one."""
    h11 = pytest.importorskip("h11", reason="the other parser is not installed")
    reader, found = h11.Connection(h11.SERVER), []
    try:
        reader.receive_data(data)
        while True:
            event = reader.next_event()
            if not isinstance(event, h11.Request):
                return found
            request, body = event, b""
            while isinstance(event := reader.next_event(), h11.Data):
                body += event.data
            if not isinstance(event, h11.EndOfMessage):
                return found
            found.append((request.method, request.target, body))
            reader.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
            reader.send(h11.EndOfMessage())
            if reader.our_state is not h11.DONE or reader.their_state is not h11.DONE:
                return found
            reader.start_next_cycle()
    except (h11.RemoteProtocolError, h11.LocalProtocolError):
        return found


@FEW
@given(streams(), st.lists(st.integers(0, 2000), max_size=5))
@example(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\nabc", [])
@example(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcGET / HTTP/1.1\r\n\r\n", [70])
def test_any_stream(plane: Any, data: bytes, cuts: list[int]) -> None:
    got = [answer for answer in answers(plane, data, cuts) if answer[0] != 100]
    assert all(status in (200, 400, 408, 413, 414, 417, 431, 501, 505) for status, _ in got), got
    assert all(status == 200 for status, _ in got[:-1]), "nothing is answered after a refusal"
    for (status, body), (method, target, content) in zip(got, told(data), strict=False):
        if status == 200 and body.endswith(b"}"):
            mine = json.loads(body)
            assert (mine["method"], mine["target"], mine["body"]) == tuple(
                part.decode("latin-1") for part in (method, target, content)
            )
    assert answers(plane, b"GET /next HTTP/1.1\r\nhost: x\r\n\r\n", [])[0][0] == 200


@settings(FEW, max_examples=200)
@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=3))
def test_any_bytes(plane: Any, data: bytes, cuts: list[int]) -> None:
    assert all(status != 500 for status, _ in answers(plane, data, cuts))
