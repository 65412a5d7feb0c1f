"""One request of an HTTP/2 connection and its response, under flow control."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ox.serve.response_memory import Body, Buffers
from ox.serve.transport.http.client_rate import ClientRate
from ox.serve.transport.http2.frames import CANCEL, DATA, END_STREAM, FRAME, NO_ERROR, WINDOW_UPDATE
from ox.serve.transport.http2.headers import Head, HeaderBlock

if TYPE_CHECKING:
    from ox.serve.transport.http2.connection import Connection

STREAM_WINDOW = 1 << 20  # the receive window of a stream, in bytes


class Stream:
    """The base class of streams: subclasses define `receive_data` and `cancel`.

    Attributes that few streams change are class attributes, since every request creates a stream.
    """

    remote_closed = local_closed = False
    receive_limit = STREAM_WINDOW  # bytes that the client may send in total
    bytes_received = 0  # bytes that it has sent
    wants_data = True  # the window is restored as data arrives
    queued = queued_small = 0  # bytes that wait for the client's window; those of small responses
    checked_at = 0.0  # time of the last check of the sending rate
    sent_since_check = 0  # bytes sent since then
    bytes_sent = 0  # bytes sent in total
    client_rate: ClientRate | None = None  # measures the client under memory pressure
    enqueued = False  # in the send queue
    end_queued = False  # no more data will be queued
    queue: deque[memoryview] | None = None
    trailers: HeaderBlock | None = None

    def __init__(self, connection: Connection, stream_id: int, head: Head, ended: bool) -> None:
        self.connection, self.stream_id, self.head = connection, stream_id, head
        self.received_at = connection.listener_state.now()
        self.window = connection.sender.peer_window
        if ended:
            self.remote_closed = True
        connection.streams[stream_id] = self

    @property
    def peer(self) -> str:
        """The client's address."""
        return self.connection.listener_state.client(self.connection.peer, self.head.headers)

    # ---- for subclasses

    def receive_data(self, data: bytes, begin: int, end: int, ended: bool) -> None:
        """Receives `data[begin:end]` of the body; `ended` with the last part, which may be empty."""

    def cancel(self) -> None:
        """The client has disconnected, reset the stream or violated the protocol."""

    def timed_out(self, started_before: float) -> bool:
        """Whether an incomplete request or message began to arrive before `started_before`."""
        return not self.remote_closed and self.received_at < started_before

    def on_receive_timeout(self) -> None:
        """The request was not received in time."""
        self.reset(CANCEL)

    # ---- the response

    def respond(self, head: HeaderBlock, body: Body, trailers: HeaderBlock | None = None) -> None:
        """Sends a complete response."""
        if self.local_closed:
            return
        sender, size = self.connection.sender, len(body)
        if (
            size <= self.window
            and size <= sender.window
            and size <= sender.peer_max_frame
            and sender.unblocked
            and type(body) is bytes
        ):
            sender.window -= size
            ident = self.stream_id.to_bytes(4, "big")
            data = FRAME.pack(size >> 16, size & 0xFFFF, DATA, END_STREAM if trailers is None else 0, self.stream_id)
            if trailers is None:
                sender.write(b"".join((head.start, ident, head.block, data, body)))
            else:
                end = trailers.start + ident + trailers.block
                sender.write(b"".join((head.start, ident, head.block, data, body, end)))
            self.close_local()
        else:
            self.send_headers(head)
            self.send_data(body)
            self.end_stream(trailers)

    def send_headers(self, head: HeaderBlock) -> None:
        """Sends status and headers; they end the stream if `head.end_stream`."""
        if not self.local_closed:
            self.connection.sender.send_header_block(self.stream_id, head)
            if head.end_stream:
                self.close_local()

    def send_data(self, body: Body) -> None:
        """Queues a part of the body, sent as the windows allow."""
        if self.local_closed or not body:
            return
        if self.queue is None:
            self.queue = deque()
        if not self.queued:
            self.checked_at, self.sent_since_check = self.connection.listener_state.loop.time(), 0
        buffers = body.buffers if isinstance(body, Buffers) else (body,)
        self.queue.extend(memoryview(piece) for piece in buffers if piece)
        sender = self.connection.sender
        sender.add_queued(self, len(body), sum(len(piece) for piece in buffers if type(piece) is bytes))
        sender.enqueue(self)
        sender.flush()

    def end_stream(self, trailers: HeaderBlock | None = None) -> None:
        """Ends the body."""
        if self.local_closed:
            return
        self.end_queued, self.trailers = True, trailers
        if not self.queued:
            self.send_end()

    def send_end(self) -> None:
        """Sends trailers or an empty DATA frame with END_STREAM, after all queued data."""
        if self.trailers is not None:
            self.connection.sender.send_header_block(self.stream_id, self.trailers)
        else:
            self.connection.sender.write(FRAME.pack(0, 0, DATA, END_STREAM, self.stream_id))
        self.close_local()

    @property
    def retained_bytes(self) -> int:
        """Bytes kept in memory by the queue: a partly sent buffer counts whole."""
        if not self.queue:
            return 0
        first = self.queue[0]
        return self.queued - len(first) + len(memoryview(first.obj))

    def on_drain(self) -> None:
        """Called when queued data has been sent; subclasses use it for backpressure."""

    def close_local(self) -> None:
        """The response is complete. Tells a client that is still sending to stop."""
        self.local_closed = True
        connection = self.connection
        if not self.remote_closed:
            connection.reset_stream(self, NO_ERROR)
        elif self.queued or connection.going_away:
            connection.remove_stream(self)
        else:
            del connection.streams[self.stream_id]

    def reset(self, code: int) -> None:
        """Ends the stream with RST_STREAM."""
        if not self.local_closed:
            self.local_closed = True
            self.connection.reset_stream(self, code)

    # ---- receiving

    def update_window(self) -> None:
        """Restores the stream's receive window once half of it is used."""
        self.wants_data = True
        unused = self.receive_limit - self.bytes_received
        if unused < STREAM_WINDOW // 2 and not self.remote_closed and not self.local_closed:
            self.receive_limit += STREAM_WINDOW - unused
            increment = (STREAM_WINDOW - unused).to_bytes(4, "big")
            self.connection.sender.write(FRAME.pack(0, 4, WINDOW_UPDATE, 0, self.stream_id) + increment)
