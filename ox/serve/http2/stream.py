"""One request of a connection and the answer to it, which may be held back by flow control."""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING

from ox.serve.answer_memory import Body, Parts
from ox.serve.http.pace import Pace
from ox.serve.http2.frames import CANCEL, DATA, END_STREAM, FRAME, NO_ERROR, WINDOW_UPDATE
from ox.serve.http2.headers import Block, Head

if TYPE_CHECKING:
    from ox.serve.http2.connection import Connection

RECEIVE = 1 << 20  # bytes of one stream that a client may send ahead of us


class Stream:
    """What a protocol on top of HTTP/2 extends: `received` and `abandoned` are for it to fill in.

    Attributes that few streams change live on the class: a stream is made for every request.
    """

    remote_ended = local_ended = False
    granted = RECEIVE  # bytes that the client may have sent in all
    size = 0  # and has
    hungry = True  # more may come
    queued = small = 0  # bytes that wait for the client's window, and those of them that are of small answers
    moved = 0.0  # when it was last looked at how many leave
    sent = 0  # have left since then
    taken = 0  # have left in all
    pace: Pace | None = None  # how fast they leave while the client has to hurry
    listed = False  # waits for its turn to send
    closing = False  # nothing more will be queued
    queue: deque[memoryview] | None = None
    trailers: Block | None = None

    def __init__(self, connection: Connection, ident: int, head: Head, ended: bool) -> None:
        self.connection, self.ident, self.head = connection, ident, head
        self.arrived = perf_counter()
        self.window = connection.peer_window
        if ended:
            self.remote_ended = True
        connection.streams[ident] = self

    # ---- for a protocol on top to fill in

    def received(self, data: bytes, begin: int, end: int, ended: bool) -> None:
        """A piece of the body; `ended` with the last one, which may be empty."""

    def abandoned(self) -> None:
        """The client has gone, or broke a rule: nobody waits for the answer."""

    def overdue(self, begun: float) -> bool:
        """Whether something that is not yet whole began to arrive before `begun`."""
        return not self.remote_ended and self.arrived < begun

    def late(self) -> None:
        """The request did not arrive whole in time."""
        self.reset(CANCEL)

    # ---- answering

    def respond(self, head: Block, body: Body, trailers: Block | None = None) -> None:
        """The whole answer at once."""
        if self.local_ended:
            return
        connection, size = self.connection, len(body)
        if (
            size <= self.window
            and size <= connection.window
            and size <= connection.peer_frame
            and connection.free
            and type(body) is bytes
        ):
            connection.window -= size
            ident = self.ident.to_bytes(4, "big")
            data = FRAME.pack(size >> 16, size & 0xFFFF, DATA, END_STREAM if trailers is None else 0, self.ident)
            if trailers is None:
                connection.write(b"".join((head.start, ident, head.block, data, body)))
            else:
                end = trailers.start + ident + trailers.block
                connection.write(b"".join((head.start, ident, head.block, data, body, end)))
            self.closed()
        else:
            self.begin(head)
            self.push(body)
            self.end(trailers)

    def begin(self, head: Block) -> None:
        """Status and headers. All there is if `head.last`."""
        if not self.local_ended:
            self.connection.send_block(self.ident, head)
            if head.last:
                self.closed()

    def push(self, body: Body) -> None:
        """A piece of the body, now or when the client makes room."""
        if self.local_ended or not body:
            return
        if self.queue is None:
            self.queue = deque()
        if not self.queued:
            self.moved, self.sent = self.connection.front.loop.time(), 0
        pieces = body.parts if isinstance(body, Parts) else (body,)
        self.queue.extend(memoryview(piece) for piece in pieces if piece)
        self.connection.hold(self, len(body), sum(len(piece) for piece in pieces if type(piece) is bytes))
        self.connection.list(self)
        self.connection.pump()

    def end(self, trailers: Block | None = None) -> None:
        """No more body."""
        if self.local_ended:
            return
        self.closing, self.trailers = True, trailers
        if not self.queued:
            self.conclude()

    def conclude(self) -> None:
        """Everything queued has left: the end."""
        if self.trailers is not None:
            self.connection.send_block(self.ident, self.trailers)
        else:
            self.connection.write(FRAME.pack(0, 0, DATA, END_STREAM, self.ident))
        self.closed()

    @property
    def holding(self) -> int:
        """Bytes that stay in memory because of what waits: of the first piece all, until its last has left."""
        if not self.queue:
            return 0
        first = self.queue[0]
        return self.queued - len(first) + len(memoryview(first.obj))

    def drained(self) -> None:
        """Some of the queue has left; for a protocol on top that paces itself."""

    def closed(self) -> None:
        """The answer has left whole. A client that is still sending need not go on."""
        self.local_ended = True
        connection = self.connection
        if not self.remote_ended:
            connection.cut(self, NO_ERROR)
        elif self.queued or connection.leaving:
            connection.forget(self)
        else:
            del connection.streams[self.ident]

    def reset(self, code: int) -> None:
        """Ends the stream without an answer, or in the middle of one."""
        if not self.local_ended:
            self.local_ended = True
            self.connection.cut(self, code)

    # ---- receiving

    def feed(self) -> None:
        """Grants the client what it has used of its window, if that is worth a frame."""
        self.hungry = True
        left = self.granted - self.size
        if left < RECEIVE // 2 and not self.remote_ended and not self.local_ended:
            self.granted += RECEIVE - left
            more = (RECEIVE - left).to_bytes(4, "big")
            self.connection.write(FRAME.pack(0, 4, WINDOW_UPDATE, 0, self.ident) + more)
