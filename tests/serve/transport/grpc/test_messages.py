"""gRPC's own framing under messages that no client would send, byte for byte."""

from __future__ import annotations

import gzip
import socket
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from manual_clock import ManualClock

from ox.errors import ServeError
from ox.serve import RequestLimits
from ox.serve.transport.grpc.http2_transport import PREFIX, status_trailers
from ox.serve.transport.grpc.rpc import StatusCode

BODY = 3_000_000  # the most that the site takes


class Raw:
    """Sends bytes as DATA and gives back status, headers and messages."""

    def __init__(self, site: Any) -> None:
        self.socket = socket.create_connection(("127.0.0.1", site.port), timeout=300)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()
        self._events: deque[h2.events.Event] = deque()
        self._send()

    def _send(self) -> None:
        self.socket.sendall(self.h2.data_to_send())

    def _receive(self) -> None:
        data = self.socket.recv(65_536)
        assert data, "the connection was closed"
        self._events.extend(self.h2.receive_data(data))

    def arrived(self) -> None:
        """Returns when the server has read what was sent."""
        self.h2.ping(b"arrived?")
        self._send()
        while not any(isinstance(event, h2.events.PingAckReceived) for event in self._events):
            self._receive()
        self._events = deque(each for each in self._events if not isinstance(each, h2.events.PingAckReceived))

    def call(
        self,
        method: str,
        pieces: list[bytes],
        headers: dict[str, str] | None = None,
        end: bool = True,
        before_each: Callable[[], None] | None = None,
        after_all: Callable[[], None] | None = None,
    ) -> tuple[dict[str, str], bytes]:
        """Headers and trailers together, and the body; a reset is under "reset". Two calls may come before
        each piece and after all of them, when the server has read what was sent."""
        stream = self.h2.get_next_available_stream_id()
        fields = {"content-type": "application/grpc", "te": "trailers", **(headers or {})}
        start = {":method": "POST", ":scheme": "http", ":path": f"/t.T/{method}", ":authority": "test"}
        self.h2.send_headers(stream, list({**start, **fields}.items()), end_stream=end and not pieces)
        for number, piece in enumerate(pieces):
            if before_each is not None:
                self.arrived()
                before_each()
            self.h2.send_data(stream, piece, end_stream=end and number == len(pieces) - 1)
        self._send()
        if after_all is not None:
            self.arrived()
            after_all()
        answer: dict[str, str] = {}
        body = b""
        while True:
            while self._events:
                event = self._events.popleft()
                if getattr(event, "stream_id", stream) != stream:  # of a call before
                    continue
                match event:
                    case h2.events.ResponseReceived() | h2.events.TrailersReceived():
                        answer.update(event.headers)
                    case h2.events.DataReceived():
                        body += event.data
                        self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    case h2.events.StreamEnded():
                        self._send()
                        return answer, body
                    case h2.events.StreamReset():
                        return {**answer, "reset": str(event.error_code)}, body
            self._send()
            self._receive()


@pytest.fixture
def raw(site: Any) -> Iterator[Raw]:
    connected = Raw(site)
    yield connected
    connected.socket.close()


@pytest.fixture
def timed(echoes: Any, patient: RequestLimits) -> Iterator[Any]:
    """A site whose time passes where a test says so."""
    with echoes(patient, ManualClock()) as running:
        yield running


@pytest.fixture
def timed_raw(timed: Any) -> Iterator[Raw]:
    raw = Raw(timed)
    raw.call("Echo", [ONE])  # by then it has acknowledged the settings
    yield raw
    raw.socket.close()


TOO_LONG_S = 40.0  # request_s and write_s are 30 s, and a connection looks at them every 7.5 s


def framed(message: bytes, flag: int = 0) -> bytes:
    return PREFIX.pack(flag, len(message)) + message


ONE = framed(b"hello")


def test_the_answer_as_bytes(raw: Raw) -> None:
    answer, body = raw.call("Echo", [ONE])
    assert answer == {":status": "200", "content-type": "application/grpc", "grpc-status": "0"} and body == ONE


@pytest.mark.parametrize("kind", ["application/grpc", "application/grpc+proto", "application/grpc;charset=utf-8"])
def test_content_types(raw: Raw, kind: str) -> None:
    assert raw.call("Echo", [ONE], {"content-type": kind})[1] == ONE


@pytest.mark.parametrize("kind", ["application/grpc+json", "application/grpc-web"])
def test_other_content_types(raw: Raw, kind: str) -> None:
    assert raw.call("Echo", [ONE], {"content-type": kind})[0][":status"] == "415"


def test_plain_requests_go_elsewhere(raw: Raw) -> None:
    answer, body = raw.call("Echo", [b"{}"], {"content-type": "application/json"})
    assert answer[":status"] == "404" and b"no such page" in body
    assert raw.call("Echo", [], {":method": "GET"})[0][":status"] == "404"


@pytest.mark.parametrize("pieces", [[ONE[:3], ONE[3:]], [bytes([byte]) for byte in ONE], [b"", ONE, b""], [ONE, b""]])
def test_messages_in_pieces(raw: Raw, pieces: list[bytes]) -> None:
    for method in ("Echo", "Each"):
        assert raw.call(method, pieces)[1] == ONE


def test_messages_in_one_piece(raw: Raw) -> None:
    assert raw.call("Each", [ONE * 3 + ONE[:4], ONE[4:] + ONE])[1] == ONE * 5


@pytest.mark.parametrize(
    ("method", "pieces", "headers", "code", "text"),
    [
        ("Echo", [], {}, StatusCode.UNIMPLEMENTED, "got no message"),
        ("Echo", [ONE + ONE], {}, StatusCode.UNIMPLEMENTED, "more than one message"),
        ("Echo", [ONE, b"x"], {}, StatusCode.UNIMPLEMENTED, "more than one message"),
        ("Echo", [ONE[:-1]], {}, StatusCode.INTERNAL, "middle of a message"),
        ("Echo", [ONE[:3]], {}, StatusCode.INTERNAL, "middle of a message"),
        ("Each", [ONE + ONE[:-1]], {}, StatusCode.INTERNAL, "middle of a message"),
        ("Echo", [framed(b"a", 2)], {}, StatusCode.INTERNAL, "unknown flag"),
        ("Each", [framed(b"a", 255)], {}, StatusCode.INTERNAL, "unknown flag"),
        ("Echo", [framed(b"a", 1)], {}, StatusCode.INTERNAL, "grpc-encoding is missing"),
        ("Echo", [framed(b"a", 1)], {"grpc-encoding": "gzip"}, StatusCode.INTERNAL, "cannot be decompressed"),
        (
            "Each",
            [framed(gzip.compress(b"a")[:-1], 1)],
            {"grpc-encoding": "gzip"},
            StatusCode.INTERNAL,
            "cannot be decompressed",
        ),
        ("Echo", [ONE], {"grpc-encoding": "br"}, StatusCode.UNIMPLEMENTED, "gzip, deflate or identity"),
        ("Echo", [ONE], {"grpc-timeout": "1"}, StatusCode.INVALID_ARGUMENT, "grpc-timeout"),
        ("Echo", [ONE], {"grpc-timeout": "123456789S"}, StatusCode.INVALID_ARGUMENT, "grpc-timeout"),
        ("Echo", [PREFIX.pack(0, BODY + 1)], {}, StatusCode.RESOURCE_EXHAUSTED, "too large"),
        ("Each", [PREFIX.pack(0, 0xFFFFFFFF)], {}, StatusCode.RESOURCE_EXHAUSTED, "too large"),
        ("Nope", [ONE], {}, StatusCode.UNIMPLEMENTED, "/t.T/Nope"),
        ("Hold", [ONE], {"grpc-timeout": "10m"}, StatusCode.DEADLINE_EXCEEDED, "0.01 s"),
    ],
)
def test_refusals(
    site: Any, raw: Raw, method: str, pieces: list[bytes], headers: dict[str, str], code: StatusCode, text: str
) -> None:
    answer, body = raw.call(method, pieces, headers)
    assert answer[":status"] == "200" and answer["grpc-status"] == str(int(code)) and text in answer["grpc-message"]
    assert body in (b"", ONE) and answer["content-type"] == "application/grpc"
    assert raw.call("Echo", [ONE])[1] == ONE
    site.held.clear()


def test_what_is_too_large_is_refused_before_it_is_sent(raw: Raw) -> None:
    answer, _ = raw.call("Echo", [PREFIX.pack(0, BODY + 1)], end=False)
    assert answer["grpc-status"] == str(int(StatusCode.RESOURCE_EXHAUSTED))
    assert raw.call("Echo", [ONE])[1] == ONE


def test_unknown_methods_are_refused_by_their_head(raw: Raw) -> None:
    assert raw.call("Nope", [], end=False)[0]["grpc-status"] == str(int(StatusCode.UNIMPLEMENTED))


@pytest.mark.parametrize(("method", "pieces"), [("Echo", [ONE[:-1]]), ("Each", [ONE[:-1]]), ("Each", [ONE, ONE[:2]])])
def test_messages_that_do_not_arrive(timed: Any, timed_raw: Raw, method: str, pieces: list[bytes]) -> None:
    answer, body = timed_raw.call(method, pieces, end=False, after_all=lambda: timed.passes(TOO_LONG_S))
    assert body == b"".join(pieces[:-1])
    assert answer["grpc-status"] == str(int(StatusCode.DEADLINE_EXCEEDED)) and "in time" in answer["grpc-message"]


def test_a_stream_may_idle_between_messages(timed: Any, timed_raw: Raw) -> None:
    assert timed_raw.call("Each", [ONE, ONE, ONE], before_each=lambda: timed.passes(TOO_LONG_S))[1] == ONE * 3


def test_answers_are_packed_for_those_who_pack(raw: Raw) -> None:
    packed = zlib.compress(bytes(5000))
    headers = {"grpc-encoding": "deflate", "grpc-accept-encoding": "identity, deflate"}
    answer, body = raw.call("Echo", [framed(packed, 1)], headers)
    assert answer["grpc-encoding"] == "deflate"
    assert body[0] == 1 and zlib.decompress(body[5:]) == bytes(5000) and len(body) < 100
    answer, body = raw.call("Echo", [framed(packed, 1)], {"grpc-encoding": "deflate"})
    assert "grpc-encoding" not in answer and body == framed(bytes(5000))


def test_slow_readers_lose_the_call(timed: Any, timed_raw: Raw) -> None:
    timed_raw.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 10})
    timed_raw.h2.acknowledge_received_data = lambda *_: None  # type: ignore[method-assign]
    answer, body = timed_raw.call("Big", [framed(b"100000")], after_all=lambda: timed.passes(TOO_LONG_S))
    assert answer["reset"] == "8" and len(body) == 10


def test_too_many_bytes_at_once(site: Any, raw: Raw) -> None:
    before = site.do(lambda: site.listener_state.buffered)
    site.do(lambda: setattr(site.listener_state, "buffered", before + 4 * BODY))
    answer, _ = raw.call("Echo", [ONE[:4], ONE[4:]])
    site.do(lambda: setattr(site.listener_state, "buffered", site.listener_state.buffered - 4 * BODY))
    assert answer["grpc-status"] == str(int(StatusCode.UNAVAILABLE))


@pytest.mark.parametrize("method", ["Echo", "Each"])
def test_who_may_not_send_much(site: Any, raw: Raw, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    asked: list[str] = []

    def admit(metadata: Mapping[bytes, bytes], peer: str) -> None:
        asked.append(peer)
        if metadata.get(b"x-api-key") != b"good":
            raise ServeError("an API key is required", status=401)

    monkeypatch.setattr(site.grpc, "admit", admit)
    assert raw.call(method, [ONE[:3], ONE[3:]])[1] == ONE and not asked
    start = PREFIX.pack(0, 40_000) + bytes(10_000)
    answer, _ = raw.call(method, [start, bytes(10_000)], end=False)
    assert answer["grpc-status"] == str(int(StatusCode.UNAUTHENTICATED))
    answer, body = raw.call(method, [start, *[bytes(10_000)] * 3], {"x-api-key": "good"})
    assert answer["grpc-status"] == "0" and len(body) == 40_005
    assert asked == ["127.0.0.1"] * 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", None), ("a b~", b"a b~"), ("50%", b"50%25"), ("é\n", b"%C3%A9%0A"), ("x" * 3000, b"x" * 2000)],
)
def test_messages_of_a_status(text: str, expected: bytes | None) -> None:
    fields = dict(status_trailers(3, text))
    assert fields.pop(b"grpc-status") == b"3" and fields.get(b"grpc-message") == expected


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["Echo", "Each", "Paced"]),
    st.lists(st.binary(max_size=12) | st.just(ONE) | st.just(PREFIX.pack(1, 3)), max_size=5),
    st.sampled_from([{}, {"grpc-encoding": "gzip"}]),
)
def test_any_bytes(site: Any, method: str, pieces: list[bytes], headers: dict[str, str]) -> None:
    raw = Raw(site)
    try:
        answer, _ = raw.call(method, pieces, headers)
        assert answer["grpc-status"] in {"0", "3", "8", "12", "13"}
        assert raw.call("Echo", [ONE])[1] == ONE
    finally:
        raw.socket.close()
