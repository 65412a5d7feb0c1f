"""gRPC's own framing under the clients of others."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

from ox.serve import RequestLimits
from ox.serve.transport.grpc import http2_transport
from ox.serve.transport.grpc.http2_transport import PREFIX
from ox.serve.transport.http2 import HttpStream, Stream

grpc = pytest.importorskip("grpc", reason="grpcio is not installed")
pytest.importorskip("grpc.aio")

BODY = 3_000_000  # the most that the site takes


@pytest.fixture
def channel(site: Any) -> Iterator[Any]:
    with grpc.insecure_channel(site.target, options=[("grpc.max_receive_message_length", -1)]) as connected:
        yield connected


@pytest.mark.parametrize("size", [0, 1, 5, 16_379, 16_380, 70_000, 1_500_000, BODY])
def test_messages_of_any_size(channel: Any, size: int) -> None:
    message = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    assert channel.unary_unary("/t.T/Echo")(message, timeout=300) == message


def test_too_large(channel: Any) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/t.T/Echo")(bytes(BODY + 1))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and f"{BODY} bytes" in caught.value.details()
    with pytest.raises(grpc.RpcError) as caught:
        list(channel.stream_stream("/t.T/Each")(iter([b"1", bytes(BODY + 1)])))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_small_but_too_large(echoes: Any) -> None:
    with echoes(RequestLimits(body=1000)) as site, grpc.insecure_channel(site.target) as connected:
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
    blank = bytes(2_900_000)
    assert channel.unary_unary("/t.T/Echo")(blank, compression=grpc.Compression.Gzip) == blank
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/t.T/Echo")(bytes(BODY + 1), compression=grpc.Compression.Gzip)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "decompress" in caught.value.details()


def test_deadlines(site: Any, channel: Any) -> None:
    before, held, seconds = site.abandoned, len(site.held), 0.1
    while len(site.held) == held:  # grpcio's time is real: it must be enough for the call to arrive
        seconds *= 2
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/t.T/Hold")(b"", timeout=seconds)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    wait_until(lambda: site.abandoned > before)
    rpc = site.held.pop()
    assert rpc.deadline is not None and 0 < rpc.deadline - rpc.received_at < seconds + 0.1
    site.do(lambda: (rpc.send(b"too late"), rpc.finish()))
    assert site.abandoned == before + 1


def test_nothing_of_a_call_that_is_over_waits_for_its_deadline(site: Any, channel: Any) -> None:
    assert channel.unary_unary("/t.T/Echo")(b"quick", timeout=3600) == b"quick"
    wait_until(lambda: not site.do(lambda: len(site.alive)))


def test_cancellation(site: Any, channel: Any) -> None:
    before, held = site.abandoned, len(site.held)
    call = channel.unary_unary("/t.T/Hold").future(b"")
    wait_until(lambda: len(site.held) > held)
    call.cancel()
    wait_until(lambda: site.abandoned > before)
    site.do(lambda: site.held.pop().fail(3, "nobody hears it"))
    assert channel.unary_unary("/t.T/Echo")(b"next") == b"next"


def test_streams(site: Any, channel: Any) -> None:
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
    assert list(channel.stream_stream("/t.T/Paced")(iter(messages), timeout=300)) == messages


def test_a_client_that_asks_without_listening(site: Any, channel: Any) -> None:
    """10 kB of answers for each two bytes: it gets no further than a megabyte or so ahead."""
    site.taken = 0
    answers = channel.stream_stream("/t.T/Many")(iter([b"10"] * 2000))
    next(answers)
    wait_until(lambda: site.do(lambda: site.taken) >= 10)
    taken = site.do(lambda: site.taken)
    assert site.do(lambda: site.listener_state.buffered) < 2_000_000 and taken < 200
    assert sum(1 for _ in answers) == 19_999


@pytest.mark.parametrize(
    "kind", [http2_transport.UnaryCall, http2_transport.StreamingCall, http2_transport.RejectedCall, HttpStream]
)
def test_no_attribute_of_a_stream_has_two_meanings(kind: type[Stream]) -> None:
    """A class that extends Stream and keeps something of its own under the name of one of Stream's attributes spoils
    the accounts of both."""
    names = [name for cls in kind.__mro__[:-1] for name, value in vars(cls).items() if not callable(value)]
    names = [name for name in names if not name.startswith("__")]
    assert sorted(names) == sorted(set(names))


def test_aio(site: Any) -> None:
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


def test_draining(echoes: Any, patient: RequestLimits) -> None:
    with echoes(patient) as site, grpc.insecure_channel(site.target) as connected:
        call = connected.unary_unary("/t.T/Hold").future(b"")
        wait_until(lambda: site.held)
        site.loop.call_soon_threadsafe(site.stopping.set)
        wait_until(lambda: site.listener_state.draining)
        site.do(lambda: site.echo(b"last", site.held[0]))
        assert call.result(timeout=300) == b"last"


@pytest.mark.skipif(shutil.which("h2load") is None, reason="h2load is not installed")
def test_h2load(site: Any, tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(PREFIX.pack(0, 300) + bytes(300))
    before = site.grpc.replies[0]
    command = ["h2load", "-n", "5000", "-c", "8", "-m", "4", "-d", str(body), "-H", "content-type: application/grpc"]
    url = f"http://{site.target}/t.T/Echo"
    done = subprocess.run([*command, url], capture_output=True, check=True, timeout=300, text=True)
    assert "5000 succeeded, 0 failed, 0 errored" in done.stdout and site.grpc.replies[0] == before + 5000
