"""The sending side of a connection: flow control and fairness between streams."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from ox.serve.transport.http.sender import CHUNK
from ox.serve.transport.http2.frames import (
    DATA,
    DEFAULT_FRAME_SIZE,
    DEFAULT_WINDOW,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    FRAME,
    MAX_INT31,
    Http2ConnectionError,
    Http2StreamError,
    rst_stream,
)
from ox.serve.transport.http2.headers import HeaderBlock
from ox.serve.transport.http2.stream import Stream

if TYPE_CHECKING:
    from ox.serve.transport.http.listener_state import ListenerState

MAX_RESET_STREAMS = 1024  # reset streams whose late frames are ignored


class Sender:
    """Sends the frames of all streams within the client's flow-control windows.

    Args:
        listener_state: counts queued bytes.
        streams: the streams of the connection by their ids.
        transport: the transport of the connection.

    Attributes:
        window, peer_window: the send window of the connection, and the initial one of a stream.
        peer_max_frame: the largest frame that the client accepts.
        unblocked: a response can be sent at once if it fits into the windows.
        paused: the write buffer of the transport is full.
        pending_before, checked_at: bytes in the transport at the last check, and its time.
        queued_small: bytes of small responses that wait for a window; `ResponseMemory` counts large ones.
        large_written: a part of a large response was written since the transport's buffer was last empty enough.
        reset_streams: streams that the server has reset.
    """

    __slots__ = (
        "_copied",
        "_listener_state",
        "_send_queue",
        "_socket_pending",
        "_streams",
        "_table_disabled",
        "_table_update",
        "_transport",
        "checked_at",
        "large_written",
        "paused",
        "peer_max_frame",
        "peer_window",
        "pending_before",
        "queued_small",
        "reset_streams",
        "unblocked",
        "window",
        "write",
    )  # fmt: skip

    def __init__(self, listener_state: ListenerState, streams: dict[int, Stream], transport: asyncio.Transport) -> None:
        self._listener_state, self._streams, self._transport = listener_state, streams, transport
        self.write = transport.write
        self.window = self.peer_window = DEFAULT_WINDOW
        self.peer_max_frame = DEFAULT_FRAME_SIZE
        self.unblocked, self.paused, self.large_written = True, False, False
        self._table_disabled = False
        self._table_update = b""  # a table size update to send before the next header block
        self.queued_small = self._socket_pending = 0  # bytes that wait for a window, and in the transport
        self._copied = 0  # bytes of the transport that are counted as response memory
        self.pending_before, self.checked_at = 0, 0.0
        self._send_queue: deque[Stream] = deque()
        self.reset_streams: dict[int, None] = {}

    def disable_table(self) -> None:
        """The client wants a smaller dynamic table: the server sets it to size 0."""
        if not self._table_disabled:
            self._table_disabled, self._table_update, self.unblocked = True, b"\x20", False

    def send_header_block(self, stream_id: int, block: HeaderBlock) -> None:
        if self._table_update:
            block, self._table_update = block.with_table_update(self._table_update), b""
            self.unblocked = not self.paused
        name = stream_id.to_bytes(4, "big")
        self.write(block.start + name + block.block)

    # ---- queues

    def add_queued(self, stream: Stream, size: int, small: int) -> None:
        """Adds queued bytes, `small` of them of small responses; negative when they leave the queue."""
        stream.queued += size
        if small:
            stream.queued_small += small
            self.queued_small += small
            self._listener_state.add_unread(small)

    @property
    def unread(self) -> int:
        """Queued bytes of small responses, and bytes in the transport if none of a large response is among them."""
        return self.queued_small + self._socket_pending

    def recently_sent(self) -> int:
        """See `ClientConnection`."""
        left = self.pending_before - self._transport.get_write_buffer_size() if self.paused else 0
        return left + sum(stream.sent_since_check for stream in self._streams.values())

    def update_unread(self) -> None:
        """See `ClientConnection`."""
        pending = self._transport.get_write_buffer_size() if self.paused else 0
        copied = pending if self.large_written else 0
        stuck = pending - copied
        if copied != self._copied:
            more, self._copied = copied - self._copied, copied
            self._listener_state.add_copied(more)
        more, self._socket_pending = stuck - self._socket_pending, stuck
        self._listener_state.add_unread(more)

    def enqueue(self, stream: Stream) -> None:
        """Puts a stream into the send queue."""
        if not stream.enqueued:
            stream.enqueued = True
            self._send_queue.append(stream)

    def flush(self) -> None:
        """Sends queued data, one frame per stream in round robin, while the windows allow it."""
        send_queue = self._send_queue
        while send_queue and self.window > 0 and not self.paused:
            stream = send_queue.popleft()
            room = min(stream.window, self.window, self.peer_max_frame, CHUNK)
            if room <= 0 or not stream.queue:
                stream.enqueued = False  # its WINDOW_UPDATE enqueues it again
                continue
            chunk = stream.queue[0]
            if len(chunk) > room:
                stream.queue[0], chunk = chunk[room:], chunk[:room]
            else:
                stream.queue.popleft()
            size = len(chunk)
            stream.window -= size
            self.window -= size
            small = type(chunk.obj) is bytes
            self.large_written |= not small
            self.add_queued(stream, -size, -size if small else 0)
            stream.sent_since_check += size
            stream.bytes_sent += size
            last = stream.end_queued and not stream.queued and stream.trailers is None
            header = FRAME.pack(size >> 16, size & 0xFFFF, DATA, END_STREAM if last else 0, stream.stream_id)
            self.write(header + chunk)
            del chunk  # or it would keep the whole response alive
            if stream.queued:
                send_queue.append(stream)
                stream.on_drain()
                continue
            stream.enqueued = False
            if last:
                stream.close_local()
            elif stream.end_queued:
                stream.send_end()
            else:
                stream.on_drain()

    def increase_window(self, stream_id: int, increment: int) -> None:
        """Handles a WINDOW_UPDATE of a stream, or of the connection (0)."""
        if stream_id == 0:
            self.window += increment
            if self.window > MAX_INT31:
                raise Http2ConnectionError(FLOW_CONTROL_ERROR, "the window of the connection is too large")
        else:
            stream = self._streams.get(stream_id)
            if stream is None:
                return  # it has just ended
            stream.window += increment
            if stream.window > MAX_INT31:
                raise Http2StreamError(FLOW_CONTROL_ERROR)
            if stream.queued:
                self.enqueue(stream)
        if self._send_queue:
            self.flush()

    def change_initial_window(self, size: int) -> None:
        """Handles a new SETTINGS_INITIAL_WINDOW_SIZE; windows of open streams may become negative."""
        increment, self.peer_window = size - self.peer_window, size
        for stream in self._streams.values():
            stream.window += increment
            if stream.window > MAX_INT31:
                raise Http2ConnectionError(FLOW_CONTROL_ERROR, "the window of a stream is too large")
            if stream.queued:
                self.enqueue(stream)
        self.flush()

    def pause(self) -> None:
        """The write buffer of the transport is full."""
        self.paused, self.unblocked = True, False
        self.pending_before = self._transport.get_write_buffer_size()
        self.checked_at = self._listener_state.loop.time()
        self.update_unread()

    def resume(self) -> None:
        """The write buffer of the transport has space again."""
        self.paused, self.unblocked, self.large_written = False, not self._table_update, False
        self.update_unread()

    # ---- ends of streams

    def discard_queue(self, stream: Stream) -> None:
        """Drops the queued data of a stream."""
        if stream.queued:
            self.add_queued(stream, -stream.queued, -stream.queued_small)
            stream.queue = None

    def reset_stream(self, stream_id: int, code: int) -> None:
        """Sends RST_STREAM; later frames of the stream are ignored."""
        self.reset_streams[stream_id] = None
        if len(self.reset_streams) > MAX_RESET_STREAMS:
            del self.reset_streams[next(iter(self.reset_streams))]
        self.write(rst_stream(stream_id, code))
