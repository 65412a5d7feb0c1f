"""gRPC's own framing: grpc-core's clients, and messages that no client would send."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import socket
import subprocess
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakSet

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ox.errors import ServeError
from ox.serve import Limits
from ox.serve.grpc.own import PREFIX, Grpc, status
from ox.serve.grpc.rpc import Code, Method, Rpc
from ox.serve.http import Exchange, Front
from ox.serve.http2 import Http2
from ox.serve.server import new_loop

grpc = pytest.importorskip("grpc", reason="grpcio is not installed")
pytest.importorskip("grpc.aio")

BODY = 3_000_000
LIMITS = Limits(body=BODY, buffered=4 * BODY, header_bytes=4096, request_s=0.6, write_s=0.6)


class Site:
    """Echoes of several kinds on a loop in a thread of its own."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self.held: list[Rpc] = []
        self.alive: WeakSet[Rpc] = WeakSet()
        self.abandoned = self.taken = 0
        calls = {
            False: [self.echo, self.hold, self.fail, self.big, self.tell],
            True: [self.each, self.many, self.paced],
        }
        methods = [(call.__name__.title(), streams, call) for streams in calls for call in calls[streams]]
        self.table = {f"/t.T/{name}".encode(): Method(f"/t.T/{name}".encode(), s, c) for name, s, c in methods}

    def echo(self, message: bytes, rpc: Rpc) -> None:
        self.alive.add(rpc)
        rpc.send(message)
        rpc.finish()

    def big(self, message: bytes, rpc: Rpc) -> None:
        rpc.send(b"b" * int(message))
        rpc.finish()

    def tell(self, message: bytes, rpc: Rpc) -> None:
        assert rpc.peer == "127.0.0.1"
        rpc.send(rpc.metadata.get(message, b"-"))
        rpc.finish()

    def hold(self, message: bytes, rpc: Rpc) -> None:
        rpc.on_abandon = self._abandoned
        self.held.append(rpc)

    def fail(self, message: bytes, rpc: Rpc) -> None:
        rpc.fail(int(message), "100% wrong: ä\n")
        rpc.fail(0, "not heard")
        rpc.send(b"not heard")
        rpc.finish()

    def each(self, message: bytes, rpc: Rpc) -> None:
        rpc.ended, rpc.on_abandon = rpc.finish, self._abandoned
        if message == b"fail":
            rpc.fail(Code.ABORTED, "enough")
        rpc.send(message)

    def many(self, message: bytes, rpc: Rpc) -> None:
        for _ in range(int(message)):
            rpc.send(bytes(10_000))
        rpc.ended = rpc.finish
        self.taken += 1

    def paced(self, message: bytes, rpc: Rpc) -> None:
        """Two at a time, each answered a moment later."""
        waiting = rpc.state = [*(rpc.state or []), message]  # type: ignore[misc]
        if len(waiting) == 1:
            rpc.ended = lambda: None if rpc.state else rpc.finish()
        assert len(waiting) <= 2
        if len(waiting) == 2:
            rpc.hold()
        self.loop.call_later(0.001, self._paced, rpc)

    def _paced(self, rpc: Rpc) -> None:
        rpc.send(rpc.state.pop(0))  # type: ignore[attr-defined]
        if rpc.ended is None and not rpc.state:
            rpc.finish()
        else:
            rpc.resume()

    def _abandoned(self) -> None:
        self.abandoned += 1

    def __enter__(self) -> Site:
        self.loop = new_loop()
        ready = threading.Event()
        self.thread = threading.Thread(target=self.loop.run_until_complete, args=(self._run(ready),))
        self.thread.start()
        ready.wait()
        self.target = f"127.0.0.1:{self.port}"
        return self

    async def _run(self, ready: threading.Event) -> None:
        def handle(exchange: Exchange) -> None:
            raise ServeError("no such page", status=404)

        self.front = Front(handle, self.limits)
        self.grpc = Grpc(self.table, self.limits.body)
        self.stopping = asyncio.Event()
        listener = await self.loop.create_server(Http2(self.front, self.grpc.plan), "127.0.0.1", 0)
        self.port = listener.sockets[0].getsockname()[1]
        ready.set()
        await self.stopping.wait()
        listener.close()
        await self.front.drain()

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.stopping.set)
        self.thread.join()
        self.loop.close()

    def do(self, call: Callable[[], Any]) -> Any:
        async def on_loop() -> Any:
            return call()

        return asyncio.run_coroutine_threadsafe(on_loop(), self.loop).result(5)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as running:
        yield running


@pytest.fixture
def channel(site: Site) -> Iterator[Any]:
    with grpc.insecure_channel(site.target, options=[("grpc.max_receive_message_length", -1)]) as connected:
        yield connected


@pytest.fixture(autouse=True)
def nothing_is_left(site: Site) -> Iterator[None]:
    yield
    assert site.do(lambda: site.front.buffered) == 0


# ---- grpc-core


@pytest.mark.parametrize("size", [0, 1, 5, 16_379, 16_380, 70_000, 1_500_000, BODY])
def test_messages_of_any_size(channel: Any, size: int) -> None:
    message = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    assert channel.unary_unary("/t.T/Echo")(message, timeout=20) == message


def test_too_large(channel: Any) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/t.T/Echo")(bytes(BODY + 1))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and f"{BODY} bytes" in caught.value.details()
    with pytest.raises(grpc.RpcError) as caught:
        list(channel.stream_stream("/t.T/Each")(iter([b"1", bytes(BODY + 1)])))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_small_but_too_large() -> None:
    with Site(Limits(body=1000)) as site, grpc.insecure_channel(site.target) as connected:
        assert connected.unary_unary("/t.T/Echo")(bytes(1000)) == bytes(1000)
        with pytest.raises(grpc.RpcError) as caught:
            connected.unary_unary("/t.T/Echo")(bytes(1001))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_failures(channel: Any) -> None:
    for code in (1, 3, 14, 16):
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/t.T/Fail")(b"%d" % code)
        assert caught.value.code().value[0] == code and caught.value.details() == "100% wrong: ä\n"
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/t.T/Nothing")(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED and "/t.T/Nothing" in caught.value.details()


def test_metadata(channel: Any) -> None:
    tell = channel.unary_unary("/t.T/Tell")
    assert tell(b"x-a", metadata=[("x-a", "1"), ("x-a", "2")]).replace(b" ", b"") == b"1,2"
    assert tell(b"x-bin", metadata=[("x-bin", b"\0\xff")]).rstrip(b"=") == b"AP8"
    with pytest.raises(grpc.RpcError) as caught:
        tell(b"x-a", metadata=[("x-a", "a" * 5000)])
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compression(channel: Any, compression: Any) -> None:
    message = bytes(100_000)
    assert channel.unary_unary("/t.T/Echo")(message, compression=compression) == message
    answers = channel.stream_stream("/t.T/Each")(iter([message, b"small", message]), compression=compression)
    assert list(answers) == [message, b"small", message]


def test_bombs(channel: Any) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/t.T/Echo")(bytes(2_900_000), compression=grpc.Compression.Gzip)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "unpacked" in caught.value.details()


def test_deadlines(site: Site, channel: Any) -> None:
    before = site.abandoned
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/t.T/Hold")(b"", timeout=0.2)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    while site.abandoned == before:
        site.do(lambda: None)
    rpc = site.held.pop()
    assert rpc.deadline is not None and 0.1 < rpc.deadline - rpc.arrived < 0.3
    site.do(lambda: (rpc.send(b"too late"), rpc.finish()))
    assert site.abandoned == before + 1


def test_nothing_of_a_call_that_is_over_waits_for_its_deadline(site: Site, channel: Any) -> None:
    assert channel.unary_unary("/t.T/Echo")(b"quick", timeout=3600) == b"quick"
    while site.do(lambda: len(site.alive)):
        pass


def test_cancellation(site: Site, channel: Any) -> None:
    before, held = site.abandoned, len(site.held)
    call = channel.unary_unary("/t.T/Hold").future(b"")
    while len(site.held) == held:
        site.do(lambda: None)
    call.cancel()
    while site.abandoned == before:
        site.do(lambda: None)
    site.do(lambda: site.held.pop().fail(3, "nobody hears it"))
    assert channel.unary_unary("/t.T/Echo")(b"next") == b"next"


def test_streams(site: Site, channel: Any) -> None:
    each = channel.stream_stream("/t.T/Each")
    messages = [b"x" * size for size in (0, 3, 16_384, 200_000, 7, 1_200_000)]
    assert list(each(iter(messages))) == messages
    assert list(each(iter([]))) == []
    call = each(iter([b"1", b"fail", b"3"]))
    with pytest.raises(grpc.RpcError) as caught:
        assert list(call) == [b"1"]
    assert caught.value.code() is grpc.StatusCode.ABORTED and caught.value.details() == "enough"


def test_a_stream_that_is_held(channel: Any) -> None:
    messages = [b"%d" % n * 1000 for n in range(100)]
    assert list(channel.stream_stream("/t.T/Paced")(iter(messages), timeout=30)) == messages


def test_a_client_that_asks_without_listening(site: Site, channel: Any) -> None:
    """10 kB of answers for each two bytes: it gets no further than a megabyte or so ahead."""
    site.taken = 0
    answers = channel.stream_stream("/t.T/Many")(iter([b"10"] * 2000))
    next(answers)
    while (taken := site.do(lambda: site.taken)) < 10:
        pass
    assert site.do(lambda: site.front.buffered) < 2_000_000 and taken < 200
    assert sum(1 for _ in answers) == 19_999


def test_aio(site: Site) -> None:
    async def talk() -> None:
        async with grpc.aio.insecure_channel(site.target) as channel:
            echo = channel.unary_unary("/t.T/Echo")
            bodies = [b"%d" % n for n in range(500)]
            assert await asyncio.gather(*(echo(body) for body in bodies)) == bodies
            call = channel.stream_stream("/t.T/Each")()
            for n in range(20):
                await call.write(b"%d" % n)
                assert await call.read() == b"%d" % n
            await call.done_writing()
            assert await call.read() is grpc.aio.EOF

    asyncio.run(talk())


def test_draining(channel: Any) -> None:
    with Site() as site, grpc.insecure_channel(site.target) as connected:
        call = connected.unary_unary("/t.T/Hold").future(b"")
        while not site.held:
            site.do(lambda: None)
        site.loop.call_soon_threadsafe(site.stopping.set)
        threading.Timer(0.5, site.loop.call_soon_threadsafe, (lambda: site.echo(b"last", site.held[0]),)).start()
        assert call.result(timeout=5) == b"last"


@pytest.mark.skipif(shutil.which("h2load") is None, reason="h2load is not installed")
def test_h2load(site: Site, tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(PREFIX.pack(0, 300) + bytes(300))
    before = site.grpc.replies[0]
    command = ["h2load", "-n", "5000", "-c", "8", "-m", "4", "-d", str(body), "-H", "content-type: application/grpc"]
    url = f"http://{site.target}/t.T/Echo"
    done = subprocess.run([*command, url], capture_output=True, check=True, timeout=60, text=True)
    assert "5000 succeeded, 0 failed, 0 errored" in done.stdout and site.grpc.replies[0] == before + 5000


# ---- what no client would send


class Raw:
    """Sends bytes as DATA and gives back status, headers and messages."""

    def __init__(self, site: Site) -> None:
        self.socket = socket.create_connection(("127.0.0.1", site.port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()
        self._send()

    def _send(self) -> None:
        self.socket.sendall(self.h2.data_to_send())

    def call(
        self, method: str, pieces: list[bytes], headers: dict[str, str] | None = None, end: bool = True
    ) -> tuple[dict[str, str], bytes]:
        """Headers and trailers together, and the body; a reset is under "reset"."""
        stream = self.h2.get_next_available_stream_id()
        fields = {"content-type": "application/grpc", "te": "trailers", **(headers or {})}
        start = {":method": "POST", ":scheme": "http", ":path": f"/t.T/{method}", ":authority": "test"}
        self.h2.send_headers(stream, list({**start, **fields}.items()), end_stream=end and not pieces)
        for number, piece in enumerate(pieces):
            self.h2.send_data(stream, piece, end_stream=end and number == len(pieces) - 1)
        self._send()
        answer: dict[str, str] = {}
        body = b""
        while True:
            data = self.socket.recv(65_536)
            assert data, "the connection was closed"
            for event in self.h2.receive_data(data):
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


@pytest.fixture
def raw(site: Site) -> Iterator[Raw]:
    connected = Raw(site)
    yield connected
    connected.socket.close()


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
        ("Echo", [], {}, Code.UNIMPLEMENTED, "got none"),
        ("Echo", [ONE + ONE], {}, Code.UNIMPLEMENTED, "got more"),
        ("Echo", [ONE, b"x"], {}, Code.UNIMPLEMENTED, "got more"),
        ("Echo", [ONE[:-1]], {}, Code.INTERNAL, "middle of a message"),
        ("Echo", [ONE[:3]], {}, Code.INTERNAL, "middle of a message"),
        ("Each", [ONE + ONE[:-1]], {}, Code.INTERNAL, "middle of a message"),
        ("Echo", [framed(b"a", 2)], {}, Code.INTERNAL, "unknown flag"),
        ("Each", [framed(b"a", 255)], {}, Code.INTERNAL, "unknown flag"),
        ("Echo", [framed(b"a", 1)], {}, Code.INTERNAL, "grpc-encoding is missing"),
        ("Echo", [framed(b"a", 1)], {"grpc-encoding": "gzip"}, Code.INTERNAL, "cannot be unpacked"),
        ("Each", [framed(gzip.compress(b"a")[:-1], 1)], {"grpc-encoding": "gzip"}, Code.INTERNAL, "cannot be unpacked"),
        ("Echo", [ONE], {"grpc-encoding": "br"}, Code.UNIMPLEMENTED, "gzip, deflate or identity"),
        ("Echo", [ONE], {"grpc-timeout": "1"}, Code.INVALID_ARGUMENT, "grpc-timeout"),
        ("Echo", [ONE], {"grpc-timeout": "123456789S"}, Code.INVALID_ARGUMENT, "grpc-timeout"),
        ("Echo", [PREFIX.pack(0, BODY + 1)], {}, Code.RESOURCE_EXHAUSTED, "too large"),
        ("Each", [PREFIX.pack(0, 0xFFFFFFFF)], {}, Code.RESOURCE_EXHAUSTED, "too large"),
        ("Nope", [ONE], {}, Code.UNIMPLEMENTED, "/t.T/Nope"),
        ("Hold", [ONE], {"grpc-timeout": "10m"}, Code.DEADLINE_EXCEEDED, "0.01 s"),
    ],
)
def test_refusals(
    site: Site, raw: Raw, method: str, pieces: list[bytes], headers: dict[str, str], code: Code, text: str
) -> None:
    answer, body = raw.call(method, pieces, headers)
    assert answer[":status"] == "200" and answer["grpc-status"] == str(int(code)) and text in answer["grpc-message"]
    assert body in (b"", ONE) and answer["content-type"] == "application/grpc"
    assert raw.call("Echo", [ONE])[1] == ONE
    site.held.clear()


def test_what_is_too_large_is_refused_before_it_is_sent(raw: Raw) -> None:
    answer, _ = raw.call("Echo", [PREFIX.pack(0, BODY + 1)], end=False)
    assert answer["grpc-status"] == str(int(Code.RESOURCE_EXHAUSTED))
    assert raw.call("Echo", [ONE])[1] == ONE


def test_unknown_methods_are_refused_by_their_head(raw: Raw) -> None:
    assert raw.call("Nope", [], end=False)[0]["grpc-status"] == str(int(Code.UNIMPLEMENTED))


def test_messages_that_do_not_arrive(raw: Raw) -> None:
    answer, _ = raw.call("Echo", [ONE[:-1]], end=False)
    assert answer["grpc-status"] == str(int(Code.DEADLINE_EXCEEDED)) and "in time" in answer["grpc-message"]


def test_answers_are_packed_for_those_who_pack(raw: Raw) -> None:
    packed = zlib.compress(bytes(5000))
    headers = {"grpc-encoding": "deflate", "grpc-accept-encoding": "identity, deflate"}
    answer, body = raw.call("Echo", [framed(packed, 1)], headers)
    assert answer["grpc-encoding"] == "deflate"
    assert body[0] == 1 and zlib.decompress(body[5:]) == bytes(5000) and len(body) < 100
    answer, body = raw.call("Echo", [framed(packed, 1)], {"grpc-encoding": "deflate"})
    assert "grpc-encoding" not in answer and body == framed(bytes(5000))


def test_slow_readers_lose_the_call(site: Site, raw: Raw) -> None:
    raw.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 10})
    raw.h2.acknowledge_received_data = lambda *_: None  # type: ignore[method-assign]
    answer, body = raw.call("Big", [framed(b"100000")])
    assert answer["reset"] == "8" and len(body) == 10


def test_too_many_bytes_at_once(site: Site, raw: Raw) -> None:
    before = site.do(lambda: site.front.buffered)
    site.do(lambda: setattr(site.front, "buffered", before + 4 * BODY))
    answer, _ = raw.call("Echo", [ONE[:4], ONE[4:]])
    site.do(lambda: setattr(site.front, "buffered", site.front.buffered - 4 * BODY))
    assert answer["grpc-status"] == str(int(Code.UNAVAILABLE))


@pytest.mark.parametrize("method", ["Echo", "Each"])
def test_who_may_not_send_much(site: Site, raw: Raw, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    asked: list[str] = []

    def admit(metadata: Mapping[bytes, bytes], peer: str) -> None:
        asked.append(peer)
        if metadata.get(b"x-api-key") != b"good":
            raise ServeError("a key is needed", status=401)

    monkeypatch.setattr(site.grpc, "admit", admit)
    assert raw.call(method, [ONE[:3], ONE[3:]])[1] == ONE and not asked
    start = PREFIX.pack(0, 40_000) + bytes(10_000)
    answer, _ = raw.call(method, [start, bytes(10_000)], end=False)
    assert answer["grpc-status"] == str(int(Code.UNAUTHENTICATED))
    answer, body = raw.call(method, [start, *[bytes(10_000)] * 3], {"x-api-key": "good"})
    assert answer["grpc-status"] == "0" and len(body) == 40_005
    assert asked == ["127.0.0.1"] * 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", None), ("a b~", b"a b~"), ("50%", b"50%25"), ("é\n", b"%C3%A9%0A"), ("x" * 3000, b"x" * 2000)],
)
def test_messages_of_a_status(text: str, expected: bytes | None) -> None:
    fields = dict(status(3, text))
    assert fields.pop(b"grpc-status") == b"3" and fields.get(b"grpc-message") == expected


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["Echo", "Each", "Paced"]),
    st.lists(st.binary(max_size=12) | st.just(ONE) | st.just(PREFIX.pack(1, 3)), max_size=5),
    st.sampled_from([{}, {"grpc-encoding": "gzip"}]),
)
def test_any_bytes(site: Site, method: str, pieces: list[bytes], headers: dict[str, str]) -> None:
    raw = Raw(site)
    try:
        answer, _ = raw.call(method, pieces, headers)
        assert answer["grpc-status"] in {"0", "3", "8", "12", "13"}
        assert raw.call("Echo", [ONE])[1] == ONE
    finally:
        raw.socket.close()
