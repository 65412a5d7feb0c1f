"""Everything of a connection that is not requests: settings, pings, windows, deadlines, the end."""

from __future__ import annotations

import asyncio
import logging
from time import perf_counter
from typing import TYPE_CHECKING, cast

from ox.serve.address import peer_of
from ox.serve.http2 import frames
from ox.serve.http2.budget import Budget
from ox.serve.http2.frames import (
    ACK,
    CANCEL,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    MOST,
    NO_ERROR,
    PING,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    SETTINGS_TIMEOUT,
    WINDOW,
    WINDOW_UPDATE,
    ConnectionFault,
    StreamFault,
    frame,
    goaway,
    read_settings,
    settings,
    window_update,
)
from ox.serve.http2.sender import Sender
from ox.serve.http2.stream import RECEIVE
from ox.serve.limits import SLOWEST

if TYPE_CHECKING:
    from ox.serve.http.front import Front

log = logging.getLogger("ox.serve")

FRAME_SIZE = frames.LARGEST  # that we take: the more there is, the more half a frame can hold
CREDIT = 16 << 20  # bytes of all streams that a client may send ahead of us
ENTRIES = 64  # of one SETTINGS frame
PAUSE_S = 0.1  # between the two GOAWAYs of a graceful end: requests that were on their way arrive


class Control(Sender):
    """What keeps a connection going, and ends it."""

    def __init__(self, front: Front) -> None:
        super().__init__(front)
        self.peer = ""  # the client's address
        self.greeting = True  # the preface has yet to come
        self.expected: int | None = SETTINGS  # the one kind of frame that may come
        self.settled = False  # the client has acknowledged ours
        self.rest = bytearray()  # the beginning of a frame
        self.need = 0  # bytes that it must have to be of use
        self.block: bytearray | None = None  # the header block that goes on in the next frame
        self.block_stream = self.block_flags = self.block_pieces = 0
        self.waiting_since = 0.0  # for the rest of either
        self.credit = CREDIT
        self.control = Budget("control frames", 2000, 500)
        self.resets = Budget("resets", 1000, 100)
        self.quiet = True  # nothing came since the last look
        self.pinged: float | None = None  # when we asked a silent client whether it is there
        self.refusing = False  # our last GOAWAY has been sent

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.write = self.transport.write  # type: ignore[method-assign]
        self.peer = peer_of(transport)
        now = self.front.loop.time()
        self.began = self.heard = now
        self.period = min(self.limits.request_s, self.limits.idle_s, self.limits.write_s) / 4
        self.deadline = now + self.period
        self.front.opened(self)
        ours = {
            frames.STREAMS: self.limits.streams,
            frames.INITIAL_WINDOW: RECEIVE,
            frames.FRAME_SIZE: FRAME_SIZE,
            frames.HEADER_LIST: self.limits.header_bytes,
            frames.NO_PRIORITIES: 1,
        }
        self.write(settings(ours) + window_update(0, CREDIT - WINDOW))
        if len(self.front.connections) > self.limits.connections:
            self.finish(ConnectionFault(ENHANCE_YOUR_CALM, "too many connections"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.stopped = True
        self.lost = True
        self.front.closed(self)
        self._abandon()
        self.recount()

    def eof_received(self) -> bool:
        """Nobody closes half of an HTTP/2 connection and goes on to read: the client has gone."""
        self.stopped = True
        self._abandon()
        return False

    # ---- frames

    def other(self, kind: int, flags: int, ident: int, payload: bytes) -> None:
        """A frame that carries no request."""
        size = len(payload)
        if kind == WINDOW_UPDATE:
            if size != 4:
                raise ConnectionFault(FRAME_SIZE_ERROR, "a WINDOW_UPDATE is not of 4 bytes")
            more = int.from_bytes(payload, "big") & MOST
            if ident:
                self._begun(ident)
            if more == 0:
                raise StreamFault(PROTOCOL_ERROR) if ident else ConnectionFault(PROTOCOL_ERROR, "a window of nothing")
            self.widen(ident, more)
            return
        if kind == RST_STREAM:
            self.resets.spend()
            if size != 4:
                raise ConnectionFault(FRAME_SIZE_ERROR, "a RST_STREAM is not of 4 bytes")
            self._begun(ident)
            stream = self.streams.get(ident)
            if stream is not None:
                stream.local_ended = True
                self.forget(stream)
                stream.abandoned()
            return
        self.control.spend()
        if kind == PING:
            self._whole(ident, size == 8)
            if not flags & ACK:
                self.write(frame(PING, ACK, 0, payload))
        elif kind == SETTINGS:
            self._whole(ident, size == 0 if flags & ACK else size % 6 == 0)
            if flags & ACK:
                self.settled = True
            else:
                self._settings(payload)
        elif kind == GOAWAY:
            self._whole(ident, size >= 8)
            self.leaving = True  # the client closes, or we do after the last answer
        elif kind == PRIORITY:
            if ident == 0:
                raise ConnectionFault(PROTOCOL_ERROR, "the connection has no priority")
            if size != 5:
                raise StreamFault(FRAME_SIZE_ERROR)
            if int.from_bytes(payload[:4], "big") & MOST == ident:
                raise StreamFault(PROTOCOL_ERROR)
        elif kind == PUSH_PROMISE:
            raise ConnectionFault(PROTOCOL_ERROR, "clients push nothing")

    def _begun(self, ident: int) -> None:
        if ident > self.last or not ident & 1:
            raise ConnectionFault(PROTOCOL_ERROR, "a stream that was not begun")

    def _whole(self, ident: int, fits: bool) -> None:
        if ident:
            raise ConnectionFault(PROTOCOL_ERROR, "a frame of the connection names a stream")
        if not fits:
            raise ConnectionFault(FRAME_SIZE_ERROR, "a frame of the wrong size")

    def _settings(self, payload: bytes) -> None:
        pairs = read_settings(payload)
        if len(pairs) > ENTRIES:
            raise ConnectionFault(ENHANCE_YOUR_CALM, "too many settings")
        for name, value in pairs:
            if name in (frames.ENABLE_PUSH, frames.NO_PRIORITIES) and value > 1:
                raise ConnectionFault(PROTOCOL_ERROR, "a setting is neither 0 nor 1")
            if name == frames.INITIAL_WINDOW and value > MOST:
                raise ConnectionFault(FLOW_CONTROL_ERROR, "the window of a stream is too large")
            if name == frames.FRAME_SIZE and not frames.LARGEST <= value <= 0xFFFFFF:
                raise ConnectionFault(PROTOCOL_ERROR, "a frame size out of range")
        wanted = dict(pairs)  # the last of each counts; going through them all for every stream would be a gift
        self.peer_frame = wanted.get(frames.FRAME_SIZE, self.peer_frame)
        if wanted.get(frames.TABLE_SIZE, 4096) < 4096 and not self.shrunk:
            self.shrunk, self.update, self.free = True, b"\x20", False
        self.write(frame(SETTINGS, ACK, 0, b""))
        if frames.INITIAL_WINDOW in wanted:
            self.rewiden(wanted[frames.INITIAL_WINDOW])

    # ---- time

    def overdue(self, now: float) -> None:
        """Looks after what takes too long. Called about four times in the shortest of the limits."""
        if self.stopped:
            self.transport.abort()
            return
        self.deadline = now + self.period
        if not self.quiet:
            self.quiet, self.heard, self.pinged = True, now, None
        limits = self.limits
        if self.write_paused:
            unsent = self.transport.get_write_buffer_size()
            if now - self.stuck_since > limits.write_s:
                if unsent > self.unsent - SLOWEST * limits.write_s:
                    self.front.slow += 1
                    self.transport.abort()
                self.unsent, self.stuck_since = unsent, now
        elif (self.rest or self.block is not None) and now - self.waiting_since > limits.request_s:
            self.finish(ConnectionFault(PROTOCOL_ERROR, "a frame did not arrive whole in time"))
        elif not self.settled and now - self.began > limits.request_s:
            self.finish(ConnectionFault(SETTINGS_TIMEOUT, "the settings were not acknowledged"))
        else:
            self._look_at_streams(now)
            if now - self.heard > limits.idle_s:
                self._silent(now)

    def _look_at_streams(self, now: float) -> None:
        begun = perf_counter() - self.limits.request_s
        least = SLOWEST * self.limits.write_s / max(1, len(self.streams))  # of each its share
        for stream in list(self.streams.values()):
            if stream.overdue(begun):
                stream.late()
            elif stream.queued and now - stream.moved > self.limits.write_s:
                if stream.sent < least:
                    self.front.slow += 1
                    stream.reset(CANCEL)
                    stream.abandoned()
                stream.moved, stream.sent = now, 0

    def hurry(self) -> None:
        """See `Link`. Each stream is judged by itself: its client takes some and leaves others as it likes."""
        front = self.front
        for stream in list(self.streams.values()):
            if not stream.queued:
                stream.pace = None
            elif stream.pace is None or stream.pace.pressure != front.pressure:
                stream.pace = front.pace(stream.holding, stream.taken)
            elif stream.pace.slow(stream.taken):
                front.slow += 1
                log.warning("a client does not take its answer: %d bytes are given up", stream.queued)
                stream.reset(CANCEL)
                stream.abandoned()

    def _silent(self, now: float) -> None:
        """Nothing came for a long time."""
        if not self.streams:
            self.finish(ConnectionFault(NO_ERROR, "idle"))
        elif self.pinged is None:
            self.pinged = now
            self.write(frame(PING, 0, 0, b"ox alive"))
        elif now - self.pinged > self.limits.write_s:
            self.transport.abort()

    # ---- the end

    def drain(self) -> None:
        """The server stops: the client is told, what it had sent by then is answered, then the connection closes."""
        if not self.stopped:
            self.write(goaway(MOST, NO_ERROR))
            self.front.loop.call_later(PAUSE_S, self._last_call)

    def _last_call(self) -> None:
        if self.stopped:
            return
        self.leaving = self.refusing = True
        self.write(goaway(self.last, NO_ERROR))
        if not self.streams:
            self.close()

    def finish(self, fault: ConnectionFault) -> None:
        """Says why, gives up all streams, and closes."""
        self.stopped = True
        self.rest, self.block = bytearray(), None
        self._abandon()
        if self.transport.is_closing():
            return
        self.write(goaway(self.last, fault.code, str(fault).encode()))
        if self.transport.can_write_eof():
            # Closing with unread bytes would reset the connection, and the client might never see why.
            self.deadline = self.front.loop.time() + self.limits.linger_s
            self.transport.write_eof()
        else:
            self.transport.close()

    def _abandon(self) -> None:
        for stream in list(self.streams.values()):
            stream.local_ended = True
            self.forget(stream)
            stream.abandoned()
