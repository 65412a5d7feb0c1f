"""The half of a connection that writes: windows, fairness between streams, a client that does not read."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from ox.serve.http2.frames import (
    DATA,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    FRAME,
    LARGEST,
    MOST,
    WINDOW,
    ConnectionFault,
    StreamFault,
    reset,
)
from ox.serve.http2.headers import Block
from ox.serve.http2.stream import Stream

if TYPE_CHECKING:
    from ox.serve.http.front import Front

GONE = 1024  # streams that ended early whose late frames are still understood


class Sender(asyncio.Protocol):
    """What streams use to send, and what the client's windows allow."""

    transport: asyncio.Transport
    deadline: float

    def __init__(self, front: Front) -> None:
        self.front, self.limits = front, front.limits
        self.streams: dict[int, Stream] = {}
        self.last = 0  # the highest stream that the client began
        self.window = self.peer_window = WINDOW  # of the connection, and of a new stream
        self.peer_frame = LARGEST
        self.free = True  # nothing stands in the way of an answer but its size
        self.write_paused = False
        self.shrunk = False
        self.update = b""  # to be told before the next header block: our table shrank to nothing
        self.queued = self.stuck = 0  # bytes that wait for a window, and for the socket
        self.small = 0  # those of `queued` that are of small answers: large ones count themselves
        self.unsent = 0  # what waited for the socket when it was last looked at
        self.leaving = self.stopped = self.lost = False
        self._turns: deque[Stream] = deque()
        self.gone: dict[int, None] = {}  # streams that we ended before the client had

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def send_block(self, ident: int, block: Block) -> None:
        if self.update:
            block, self.update = block.after(self.update), b""
            self.free = not self.write_paused
        name = ident.to_bytes(4, "big")
        self.write(block.start + name + block.block)

    # ---- queues

    def hold(self, stream: Stream, size: int, small: int) -> None:
        """Accounts for bytes that wait, or (negative) no longer do; `small` of them are of small answers."""
        stream.queued += size
        self.queued += size
        if small:
            stream.small += small
            self.small += small
            self.front.hold(small)

    @property
    def unread(self) -> int:
        """Bytes of small answers that wait for the client, and all that waits for the socket."""
        return self.small + self.stuck

    def moved(self) -> int:
        """See `Link`."""
        stuck = self.unsent - self.transport.get_write_buffer_size() if self.write_paused else 0
        return stuck + sum(stream.sent for stream in self.streams.values())

    def recount(self) -> None:
        """See `Link`."""
        stuck = self.transport.get_write_buffer_size() if self.write_paused and not self.lost else 0
        more, self.stuck = stuck - self.stuck, stuck
        self.front.hold(more)

    def list(self, stream: Stream) -> None:
        """It wants its turn."""
        if not stream.listed:
            stream.listed = True
            self._turns.append(stream)

    def pump(self) -> None:
        """Sends what waits, a frame of each stream in turn, while the client takes it."""
        turns = self._turns
        while turns and self.window > 0 and not self.write_paused:
            stream = turns.popleft()
            room = min(stream.window, self.window, self.peer_frame)
            if room <= 0 or not stream.queue:
                stream.listed = False  # its own window will list it again
                continue
            piece = stream.queue[0]
            if len(piece) > room:
                stream.queue[0], piece = piece[room:], piece[:room]
            else:
                stream.queue.popleft()
            size = len(piece)
            stream.window -= size
            self.window -= size
            self.hold(stream, -size, -size if type(piece.obj) is bytes else 0)
            stream.sent += size
            stream.taken += size
            last = stream.closing and not stream.queued and stream.trailers is None
            header = FRAME.pack(size >> 16, size & 0xFFFF, DATA, END_STREAM if last else 0, stream.ident)
            self.write(header + piece)
            del piece  # or it would hold the whole answer
            if stream.queued:
                turns.append(stream)
                stream.drained()
                continue
            stream.listed = False
            if last:
                stream.closed()
            elif stream.closing:
                stream.conclude()
            else:
                stream.drained()

    def widen(self, ident: int, more: int) -> None:
        """The client makes room for more bytes: on a stream, or on the connection (0)."""
        if ident == 0:
            self.window += more
            if self.window > MOST:
                raise ConnectionFault(FLOW_CONTROL_ERROR, "the window of the connection is too large")
        else:
            stream = self.streams.get(ident)
            if stream is None:
                return  # it ended a moment ago
            stream.window += more
            if stream.window > MOST:
                raise StreamFault(FLOW_CONTROL_ERROR)
            if stream.queued:
                self.list(stream)
        if self._turns:
            self.pump()

    def rewiden(self, size: int) -> None:
        """New streams begin with another window; those that are there follow, and may owe bytes afterwards."""
        more, self.peer_window = size - self.peer_window, size
        for stream in self.streams.values():
            stream.window += more
            if stream.window > MOST:
                raise ConnectionFault(FLOW_CONTROL_ERROR, "the window of a stream is too large")
            if stream.queued:
                self.list(stream)
        self.pump()

    def pause_writing(self) -> None:
        self.write_paused, self.free = True, False
        self.unsent = self.transport.get_write_buffer_size()
        self.stuck_since = self.front.loop.time()
        self.recount()
        if not self.transport.is_closing():
            self.transport.pause_reading()  # or its pings and requests would go on to be answered into memory

    def resume_writing(self) -> None:
        self.write_paused, self.free = False, not self.update
        self.recount()
        if not self.transport.is_closing():
            self.transport.resume_reading()
        self.pump()

    # ---- ends of streams

    def forget(self, stream: Stream) -> None:
        """Both sides are done with it."""
        self.streams.pop(stream.ident, None)
        if stream.queued:
            self.hold(stream, -stream.queued, -stream.small)
            stream.queue = None
        if self.leaving and not self.streams and not self.stopped:
            self.close()

    def cut(self, stream: Stream, code: int) -> None:
        """We end it before the client has; what is still on its way is ignored."""
        self.tell_reset(stream.ident, code)
        self.forget(stream)

    def tell_reset(self, ident: int, code: int) -> None:
        self.gone[ident] = None
        if len(self.gone) > GONE:
            del self.gone[next(iter(self.gone))]
        self.write(reset(ident, code))

    def close(self) -> None:
        """Once everything is written."""
        self.stopped = True
        self.deadline = self.front.loop.time() + self.limits.write_s
        self.transport.close()
