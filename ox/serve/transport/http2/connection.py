"""HTTP/2 on a bare asyncio.Protocol: frames in, streams out, limits and timeouts on everything (RFC 9113).

A request becomes a `Stream` when its headers are complete; the subclass of `Stream` handles it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from ox.serve.transport.address import client_address
from ox.serve.transport.http2.control import CONNECTION_WINDOW, FRAME_SIZE, ControlFrames, Timeouts
from ox.serve.transport.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME,
    FRAME_SIZE_ERROR,
    HEADER_SIZE,
    HEADERS,
    INTERNAL_ERROR,
    MAX_INT31,
    NO_ERROR,
    PADDED,
    PREFACE,
    PRIORITY_FLAG,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    SETTINGS,
    STREAM_CLOSED,
    Http2ConnectionError,
    Http2StreamError,
    goaway,
    header_block_bounds,
    strip_padding,
    window_update,
)
from ox.serve.transport.http2.headers import Head, HeaderBlockDecoder, StreamFactory, check_trailers
from ox.serve.transport.http2.sender import Sender
from ox.serve.transport.http2.stream import Stream

if TYPE_CHECKING:
    from ox.serve.transport.http.listener_state import ListenerState

log = logging.getLogger("ox.serve")

WINDOW_UPDATE_THRESHOLD = CONNECTION_WINDOW // 2  # below it the client gets a WINDOW_UPDATE
MAX_HEADER_FRAMES = 32  # HEADERS and CONTINUATION frames of one header block
GOAWAY_PAUSE_S = 0.1  # between the two GOAWAYs of a graceful shutdown, for requests in flight


class Connection(asyncio.Protocol):
    """The connection of one client: parses frames. `Sender` writes, `ControlFrames` and `Timeouts` do the rest."""

    deadline: float

    def __init__(
        self, listener_state: ListenerState, route: Callable[[Head], StreamFactory], peer: str | None = None
    ) -> None:
        self.listener_state, self.limits, self.route = listener_state, listener_state.limits, route
        self.peer, self._peer_known = peer or "", peer is not None  # the client's address
        self.streams: dict[int, Stream] = {}
        self.last_stream_id = 0  # the highest that the client has opened
        self.skipped_streams: list[tuple[int, int]] = []  # ranges of stream ids that the client skipped
        self.header_decoder = HeaderBlockDecoder(self.limits.header_bytes, self.limits.header_count)
        self.head_cache = self.header_decoder.cache
        self.awaiting_preface = True  # the client has not sent its preface
        self.expected_frame: int | None = SETTINGS  # the only frame type allowed next
        self.partial_frame = bytearray()  # the start of an incomplete frame
        self.needed_bytes = 0  # bytes needed before parsing continues
        self.block: bytearray | None = None  # a header block that continues in the next frame
        self.block_stream = self.block_flags = self.block_frames = 0
        self.incomplete_since = 0.0  # arrival of an incomplete frame or header block
        self.receive_window = CONNECTION_WINDOW
        self.going_away = False  # closes after the open streams
        self.refusing_streams = False  # the last GOAWAY has been sent
        self.stopped = False  # reads no more frames

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.sender = Sender(self.listener_state, self.streams, self.transport)
        self.control_frames, self.timeouts = ControlFrames(self), Timeouts(self)
        if not self._peer_known:
            self.peer = client_address(transport)
        self.listener_state.add_connection(self)
        self.control_frames.send_settings()
        if len(self.listener_state.connections) > self.limits.connections:
            self.close_with_error(Http2ConnectionError(ENHANCE_YOUR_CALM, "too many connections"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.stopped = True
        self.listener_state.remove_connection(self)
        self._cancel_streams()
        self.sender.paused = False  # nothing is queued
        self.sender.update_unread()

    def eof_received(self) -> bool:
        """The client has disconnected: HTTP/2 has no half-closed connections."""
        self.stopped = True
        self._cancel_streams()
        return False

    def pause_writing(self) -> None:
        self.sender.pause()
        if not self.transport.is_closing():
            self.transport.pause_reading()  # or responses to its pings and requests would pile up in memory

    def resume_writing(self) -> None:
        self.sender.resume()
        if not self.transport.is_closing():
            self.transport.resume_reading()
        self.sender.flush()

    def data_received(self, data: bytes) -> None:
        if self.stopped:
            return
        self.timeouts.idle = False
        if self.partial_frame:
            self.partial_frame += data
            if len(self.partial_frame) < self.needed_bytes:
                return
            data = bytes(self.partial_frame)
            self.partial_frame = bytearray()
        try:
            at = self._read_frames(data)
        except Http2ConnectionError as error:
            self.close_with_error(error)
        except Exception as error:
            log.error("exception in an HTTP/2 connection", exc_info=error)
            self.close_with_error(Http2ConnectionError(INTERNAL_ERROR, "the server failed"))
        else:
            if at < len(data) and not self.stopped:
                self.partial_frame += data[at:]
                self.incomplete_since = self.listener_state.loop.time()

    # ---- frames

    def _read_frames(self, data: bytes) -> int:
        """Handles the complete frames and returns where the incomplete rest begins."""
        at, size = 0, len(data)
        if self.awaiting_preface:
            if not PREFACE.startswith(data[: len(PREFACE)]):
                raise Http2ConnectionError(PROTOCOL_ERROR, "this is not HTTP/2")
            if size < len(PREFACE):
                self.needed_bytes = len(PREFACE)
                return 0
            self.awaiting_preface = False
            at = len(PREFACE)
        unpack, streams = FRAME.unpack_from, self.streams
        self.needed_bytes = HEADER_SIZE
        while size - at >= HEADER_SIZE and not self.stopped:
            high, low, kind, flags, stream_id = unpack(data, at)
            length = high << 16 | low
            begin = at + HEADER_SIZE
            end = begin + length
            if length > FRAME_SIZE:
                raise Http2ConnectionError(FRAME_SIZE_ERROR, f"a frame is larger than {FRAME_SIZE}")
            if end > size:
                self.needed_bytes = HEADER_SIZE + length
                break
            at = end
            stream_id &= MAX_INT31
            if self.expected_frame is not None:
                self._check_expected(kind, flags, stream_id)
            try:
                if kind == DATA:
                    self.receive_window -= length
                    if self.receive_window < WINDOW_UPDATE_THRESHOLD:
                        self._update_window()
                    stream = streams.get(stream_id)
                    if stream is None or stream.remote_closed:
                        self._check_closed_stream(stream_id, stream)
                        continue
                    if flags & PADDED:
                        begin, end = strip_padding(data, begin, end)
                        stream.receive_limit -= length - (end - begin)
                    stream.bytes_received = total = stream.bytes_received + end - begin
                    if flags & END_STREAM:
                        if total > stream.receive_limit:
                            raise Http2StreamError(FLOW_CONTROL_ERROR)
                        if total != stream.head.length and stream.head.length is not None:
                            raise Http2StreamError(PROTOCOL_ERROR)
                        stream.remote_closed = True
                        stream.receive_data(data, begin, end, True)
                    else:
                        self._receive_data(stream, data, begin, end)
                elif kind == HEADERS:
                    if flags & (PADDED | PRIORITY_FLAG):
                        begin, end = header_block_bounds(data, begin, end, flags, stream_id)
                    if flags & END_HEADERS:
                        self._receive_headers(stream_id, data[begin:end], flags & END_STREAM)
                    else:
                        self._start_header_block(stream_id, flags, data[begin:end])
                elif kind == CONTINUATION:
                    self._continue_header_block(flags, data[begin:end])
                else:
                    self.control_frames.receive(kind, flags, stream_id, data[begin:end])
            except Http2StreamError as error:
                self._stream_error(stream_id, error.code)
        return at

    def _check_expected(self, kind: int, flags: int, stream_id: int) -> None:
        """Checks that a frame is of the only type allowed now."""
        if self.block is None:
            if kind != SETTINGS or flags & ACK:
                raise Http2ConnectionError(PROTOCOL_ERROR, "the first frame is not SETTINGS")
        elif kind != CONTINUATION or stream_id != self.block_stream:
            raise Http2ConnectionError(PROTOCOL_ERROR, "a header block was interrupted")
        self.expected_frame = None

    def _update_window(self) -> None:
        """Restores the receive window of the connection."""
        if self.receive_window < 0:
            raise Http2ConnectionError(FLOW_CONTROL_ERROR, "more than the window of the connection")
        self.sender.write(window_update(0, CONNECTION_WINDOW - self.receive_window))
        self.receive_window = CONNECTION_WINDOW

    def _receive_data(self, stream: Stream, data: bytes, begin: int, end: int) -> None:
        """A DATA frame without END_STREAM."""
        if stream.bytes_received > stream.receive_limit:
            raise Http2StreamError(FLOW_CONTROL_ERROR)
        if stream.head.length is not None and stream.bytes_received > stream.head.length:
            raise Http2StreamError(PROTOCOL_ERROR)
        if begin == end:
            self.control_frames.frame_limit.consume()
            return
        stream.receive_data(data, begin, end, False)
        if stream.wants_data:
            stream.update_window()

    def _start_header_block(self, stream_id: int, flags: int, fragment: bytes) -> None:
        self.block, self.block_stream, self.block_flags, self.block_frames = bytearray(), stream_id, flags, 0
        self.incomplete_since = self.listener_state.loop.time()
        self._continue_header_block(0, fragment)

    def _continue_header_block(self, flags: int, fragment: bytes) -> None:
        if self.block is None:
            raise Http2ConnectionError(PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        self.block += fragment
        self.block_frames += 1
        if len(self.block) > self.limits.header_bytes or self.block_frames > MAX_HEADER_FRAMES:
            raise Http2ConnectionError(ENHANCE_YOUR_CALM, "a header block is too long")
        if flags & END_HEADERS:
            block, self.block = bytes(self.block), None
            self._receive_headers(self.block_stream, block, self.block_flags & END_STREAM)
        else:
            self.expected_frame = CONTINUATION

    def _receive_headers(self, stream_id: int, block: bytes, ended: int) -> None:
        """A complete header block."""
        if stream_id <= self.last_stream_id or not stream_id & 1:
            self._receive_trailers(stream_id, block, ended)
            return
        if stream_id > self.last_stream_id + 2:
            self.skipped_streams = [*self.skipped_streams[-7:], (self.last_stream_id, stream_id)]
        self.last_stream_id = stream_id
        head = self.head_cache.get(block)
        if head is None:
            head = self.header_decoder.decode_head(block)
            head.create_stream = self.route(head)
        if (
            self.refusing_streams
            or len(self.streams) >= self.limits.streams
            or self.sender.queued_small > self.limits.reply
        ):
            raise Http2StreamError(REFUSED_STREAM)
        if not ended:
            head.create_stream(self, stream_id, head, False)
        elif head.length:
            raise Http2StreamError(PROTOCOL_ERROR)
        else:
            stream = head.create_stream(self, stream_id, head, True)
            if not stream.local_closed:
                stream.receive_data(b"", 0, 0, True)

    def _receive_trailers(self, stream_id: int, block: bytes, ended: int) -> None:
        """A header block on an open stream."""
        if not stream_id & 1:
            raise Http2ConnectionError(PROTOCOL_ERROR, "clients open streams with odd numbers only")
        if any(low < stream_id < high for low, high in self.skipped_streams):
            raise Http2ConnectionError(PROTOCOL_ERROR, "a skipped stream")
        fields = self.header_decoder.decode(block)  # always, to keep the HPACK table in sync
        stream = self.streams.get(stream_id)
        if stream is None or stream.remote_closed:
            self._check_closed_stream(stream_id, stream)
        elif not ended:
            raise Http2StreamError(PROTOCOL_ERROR)
        else:
            check_trailers(fields)
            if stream.head.length not in (None, stream.bytes_received):
                raise Http2StreamError(PROTOCOL_ERROR)
            stream.remote_closed = True
            stream.receive_data(b"", 0, 0, True)

    def _check_closed_stream(self, stream_id: int, stream: Stream | None) -> None:
        """Handles a frame for an idle or closed stream."""
        if stream_id > self.last_stream_id or stream_id == 0 or not stream_id & 1:
            raise Http2ConnectionError(PROTOCOL_ERROR, "an idle stream")
        if stream is not None:
            raise Http2StreamError(STREAM_CLOSED)
        if stream_id not in self.sender.reset_streams:
            raise Http2ConnectionError(STREAM_CLOSED, "a closed stream")
        self.control_frames.frame_limit.consume()

    def _stream_error(self, stream_id: int, code: int) -> None:
        """Resets a stream after a stream error of the client. Errors count like resets: a flood of either ends the
        connection."""
        self.control_frames.reset_limit.consume()
        stream = self.streams.get(stream_id)
        if stream is None:
            self.sender.reset_stream(stream_id, code)
            return
        stream.reset(code)
        stream.cancel()

    # ---- a client that reads its responses slowly: see `ClientConnection`

    @property
    def frame_incomplete(self) -> bool:
        """Whether a frame or a header block is incomplete."""
        return bool(self.partial_frame) or self.block is not None

    @property
    def unread(self) -> int:
        return self.sender.unread

    def recently_sent(self) -> int:
        return self.sender.recently_sent()

    def update_unread(self) -> None:
        self.sender.update_unread()

    def on_deadline(self, now: float) -> None:
        self.timeouts.on_deadline(now)

    def enforce_rate(self) -> None:
        self.timeouts.enforce_rate()

    # ---- the end

    def remove_stream(self, stream: Stream) -> None:
        """Removes a stream that both sides have closed."""
        self.streams.pop(stream.stream_id, None)
        self.sender.discard_queue(stream)
        if self.going_away and not self.streams and not self.stopped:
            self._close()

    def reset_stream(self, stream: Stream, code: int) -> None:
        """Resets a stream that the client has not closed, and ignores its frames in flight."""
        self.sender.reset_stream(stream.stream_id, code)
        self.remove_stream(stream)

    def drain(self) -> None:
        """Graceful shutdown: sends GOAWAY, answers the requests in flight, closes."""
        if not self.stopped:
            self.sender.write(goaway(MAX_INT31, NO_ERROR))
            self.listener_state.loop.call_later(GOAWAY_PAUSE_S, self._send_last_goaway)

    def _send_last_goaway(self) -> None:
        if self.stopped:
            return
        self.going_away = self.refusing_streams = True
        self.sender.write(goaway(self.last_stream_id, NO_ERROR))
        if not self.streams:
            self._close()

    def _close(self) -> None:
        """Closes after the write buffer is flushed."""
        self.stopped = True
        self.deadline = self.listener_state.loop.time() + self.limits.write_s
        self.transport.close()

    def close_with_error(self, error: Http2ConnectionError) -> None:
        """Cancels all streams, sends GOAWAY with the reason, and closes."""
        self.stopped = True
        self.partial_frame, self.block = bytearray(), None
        self._cancel_streams()
        if self.transport.is_closing():
            return
        self.sender.write(goaway(self.last_stream_id, error.code, str(error).encode()))
        if self.transport.can_write_eof():
            # Closing with unread bytes resets the connection, and the client might not see the GOAWAY.
            self.deadline = self.listener_state.loop.time() + self.limits.linger_s
            self.transport.write_eof()
        else:
            self.transport.close()

    def _cancel_streams(self) -> None:
        for stream in list(self.streams.values()):
            stream.local_closed = True
            self.remove_stream(stream)
            stream.cancel()
