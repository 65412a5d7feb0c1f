"""Frames that nobody would send, and valid ones with bytes replaced: the server answers or closes, and goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ox.serve import RequestLimits
from ox.serve.transport.http2 import frames as f

MANY = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def patient(serve: Any) -> Iterator[Any]:
    """As long as hypothesis thinks."""
    with serve(RequestLimits(body=100_000)) as running:
        yield running


kinds = st.integers(0, 10)
streams = st.sampled_from([0, 1, 1, 1, 2, 3, 3, 5, 7, 2**31 - 1])
flags = st.sampled_from([0, 1, 4, 5, 8, 0x0C, 0x0D, 0x20, 0x24, 0x25, 0x2D, 0xFF])
blocks = st.sampled_from([b"\x82\x86\x84\x41\x01x", b"\x82\x86\x84", b"\xbe", b"\x40\x01a\x01b", b"\x20"])
payloads = (
    st.binary(max_size=20)
    | st.sampled_from([bytes(4), bytes(8), b"\0\0\0\1", b"\x7f\xff\xff\xff", b"\0\4\0\0\0\1", b"\0\4\x7f\xff\xff\xff"])
    | blocks
)
some_frames = st.lists(st.builds(f.frame, kinds, flags, streams, payloads), max_size=12)


def exchange(site: Any, connect: Any, data: bytes, caplog: Any) -> None:
    """Sends, half-closes, and reads to the end: every byte that comes back is a whole frame."""
    with connect(site.port, greet=False) as wire:
        try:
            wire.send(data)
            wire.socket.shutdown(1)
            while wire.frame():
                pass
        except (ConnectionError, OSError) as error:
            assert "unread" not in str(error) or "b''" in str(error)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    with connect(site.port) as wire:
        wire.send(wire.head(1))
        assert wire.answer(1)[0] == 200
        assert site.do(lambda: site.listener_state.buffered) == 0
        assert site.do(lambda: sum(len(each.streams) for each in site.listener_state.connections)) == 0


@MANY
@given(some_frames)
def test_any_frames(patient: Any, connect: Any, caplog: Any, frames: list[bytes]) -> None:
    exchange(patient, connect, f.PREFACE + f.settings({}) + b"".join(frames), caplog)


@MANY
@given(st.integers(0, 250), st.binary(min_size=1, max_size=4), st.binary(max_size=100))
@example(24, b"\0", b"")
def test_a_patched_request(patient: Any, connect: Any, caplog: Any, at: int, patch: bytes, junk: bytes) -> None:
    whole = f.PREFACE + f.settings({f.INITIAL_WINDOW_SIZE: 100})
    whole += f.frame(f.HEADERS, f.END_HEADERS, 1, b"\x83\x86\x84\x41\x04test\x0f\x0d\x0210")
    whole += f.frame(f.DATA, 0, 1, b"12345") + f.frame(f.DATA, f.END_STREAM | f.PADDED, 1, b"\x0267890\0\0")
    whole += f.frame(f.HEADERS, 5, 3, b"\x82\x86\x44\x04/abc\x41\x04test\x40\x01a\x01b") + f.window_update(1, 100)
    whole += f.frame(f.HEADERS, 5, 5, b"\x82\x86\xc0\xbf\xbe") + f.frame(f.PING, 0, 0, bytes(8))
    exchange(patient, connect, whole[:at] + patch + whole[at + len(patch) :] + junk, caplog)


@MANY
@given(st.binary(max_size=200))
def test_any_bytes(patient: Any, connect: Any, caplog: Any, junk: bytes) -> None:
    exchange(patient, connect, f.PREFACE + junk, caplog)
