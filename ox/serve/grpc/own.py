"""gRPC's framing on our own HTTP/2: length-prefixed messages in, messages and a status out."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from urllib.parse import quote

from ox.errors import ServeError
from ox.serve.answer_memory import Body
from ox.serve.grpc.framing import PREFIX, framed, packed
from ox.serve.grpc.rpc import Code, Method, Note, failure
from ox.serve.grpc.wire import at_most
from ox.serve.http.encoding import WINDOW, unpack
from ox.serve.http2 import Block, Head, Maker, Plain, Stream
from ox.serve.http2.connection import Connection

CONTENT_TYPE = re.compile(rb"application/grpc(\+proto)?\s*(;.*)?").fullmatch
TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])").fullmatch
UNIT = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
ACCEPTED = (b"grpc-accept-encoding", b"identity,deflate,gzip")
START = [(b":status", b"200"), (b"content-type", b"application/grpc")]
ANSWER = {
    b"": Block(START),
    **{name: Block([*START, (b"grpc-encoding", name), ACCEPTED]) for name in WINDOW},
}
FINE = Block([(b"grpc-status", b"0")], last=True)
FOREVER = 1e7  # seconds
TEXT = 2000  # bytes of an error's text
LONG = 16 << 10  # bytes of messages, from which on a client is asked who it is before more is kept
PACE = 1 << 20  # bytes of answers that may wait in a stream before it takes no more questions


# Looks at a call's metadata and its client's address; raises ServeError for who may send nothing long.
Admit = Callable[[Mapping[bytes, bytes], str], None]


class Way:
    """What all calls with one head have in common."""

    def __init__(self, grpc: Grpc, method: Method, head: Head) -> None:
        self.grpc, self.call, self.most = grpc, method.call, grpc.most
        headers = head.headers
        self.timeout: float | None = None
        timeout = headers.get(b"grpc-timeout")
        if timeout is not None:
            match = TIMEOUT(timeout)
            if match is None:
                raise ServeError("the header grpc-timeout is wrong", expected="up to 8 digits and one of HMSmun")
            self.timeout = min(int(match[1]) * UNIT[match[2]], FOREVER)
        encoding = headers.get(b"grpc-encoding", b"identity").lower()
        self.encoding = b"" if encoding == b"identity" else encoding
        if self.encoding and self.encoding not in WINDOW:
            raise ServeError("unknown grpc-encoding", status=501, expected="gzip, deflate or identity")
        # Every client says what it could unpack; those that pack are the ones that want it.
        accepted = headers.get(b"grpc-accept-encoding", b"").replace(b" ", b"").split(b",")
        self.answer_encoding = self.encoding if self.encoding in accepted else b""
        self.start = ANSWER[self.answer_encoding]


class Call(Stream):
    """One call: the transport's side of `Rpc`."""

    deadline: float | None = None
    on_abandon: Callable[[], None] | None = None
    ended: Callable[[], None] | None = None
    state: object = None
    timer: asyncio.TimerHandle | None = None
    buffer: bytearray | None = None
    held = 0  # bytes of messages that the front accounts for
    started = over = admitted = False

    def __init__(self, way: Way, connection: Connection, ident: int, head: Head, whole: bool) -> None:
        super().__init__(connection, ident, head, whole)
        self.way = way
        self.metadata: Mapping[bytes, bytes] = head.headers
        self.peer = connection.peer
        if way.timeout is not None:
            self.deadline = self.arrived + way.timeout
            self.timer = connection.front.loop.call_later(way.timeout, self._expired)

    # ---- Rpc

    def finish(self) -> None:
        """See Rpc."""
        if self._end():
            self.way.grpc.ended(self, Code.OK)
            if not self.started:
                self.begin(self.way.start)
            self.end(FINE)

    def fail(self, code: int, text: str) -> None:
        """See Rpc."""
        if self._end():
            self.way.grpc.ended(self, code)
            fields = status(code, text)
            if self.started:
                self.end(Block(fields, last=True))
            else:
                self.begin(Block([*START, *fields], last=True))

    def hold(self) -> None:
        """See Rpc. A unary call has had all its messages."""

    def resume(self) -> None:
        """See Rpc."""

    # ---- Stream

    def abandoned(self) -> None:
        callback = self.on_abandon
        self._end()
        if callback is not None:
            callback()

    def late(self) -> None:
        self._refuse(ServeError("the request did not arrive whole in time", status=408))

    # ---- ours

    def _end(self) -> bool:
        """Whether the call was not over before."""
        if self.over:
            return False
        self.over = True
        self.on_abandon = self.ended = None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self._release()
        return True

    def _release(self) -> None:
        self.buffer = None
        if self.held:
            self.connection.front.buffered -= self.held
            self.held = 0

    def _expired(self) -> None:
        callback = self.on_abandon
        self.fail(Code.DEADLINE_EXCEEDED, f"the call took longer than {self.way.timeout:g} s")
        if callback is not None:
            callback()

    def _refuse(self, error: ServeError) -> None:
        callback = self.on_abandon
        self.fail(*failure(error))
        if callback is not None:
            callback()

    def _keep(self, size: int) -> None:
        """Accounts for bytes of a message that is not yet answered."""
        front = self.connection.front
        self.held += size
        front.buffered += size
        if front.buffered > front.limits.buffered:
            raise ServeError("the server holds all it may (--limit buffered)", status=503, hint="again in a moment")
        admit = self.way.grpc.admit
        if admit is not None and self.held > LONG and not self.admitted:
            admit(self.metadata, self.peer)
            self.admitted = True

    def _measure(self, flag: int, length: int) -> None:
        """Raises ServeError for a message that is none, before anything is kept of it."""
        if flag > 1:
            raise ServeError("a message has an unknown flag", status=500, expected="0 or 1", got=str(flag))
        if flag and not self.way.encoding:
            raise ServeError("a message is compressed, but the header grpc-encoding is missing", status=500)
        if length > self.way.most:
            expected, got = at_most(self.way.most), f"{length} bytes"
            raise ServeError("the message is too large", status=413, expected=expected, got=got)

    def _plain(self, flag: int, message: bytes) -> bytes:
        if not flag:
            return message
        try:
            return unpack(message, self.way.encoding, self.way.most)
        except ServeError as error:
            if error.status == 413:
                raise
            raise ServeError("a message cannot be unpacked", status=500, got=error.one_line()) from None


class Unary(Call):
    """One message each way."""

    message: Body | None = None

    def received(self, data: bytes, begin: int, end: int, ended: bool) -> None:
        if ended and self.buffer is None and end - begin >= 5:
            flag, length = PREFIX.unpack_from(data, begin)
            if not flag and length == end - begin - 5 and length <= self.way.most:
                self.way.call(data[begin + 5 : end], self)  # nearly always
                return
        if self.over:
            return
        try:
            self._collect(data[begin:end], ended)
        except ServeError as error:
            self._refuse(error)

    def _collect(self, piece: bytes, ended: bool) -> None:
        if self.buffer is None:
            self.buffer = bytearray()
        self.buffer += piece
        self._keep(len(piece))
        if len(self.buffer) >= 5:
            flag, length = PREFIX.unpack_from(self.buffer)
            self._measure(flag, length)
            if len(self.buffer) > 5 + length:
                raise ServeError("the call takes one message and got more", status=501)
            if ended and len(self.buffer) == 5 + length:
                message = bytes(memoryview(self.buffer)[5:])
                self.buffer = None
                self.way.call(self._plain(flag, message), self)
                return
        if not ended:
            return
        if self.buffer:
            raise ServeError("the request ended in the middle of a message", status=500)
        raise ServeError("the call takes one message and got none", status=501)

    def send(self, message: Body) -> None:
        """See Rpc."""
        self.message = message

    def finish(self) -> None:
        """See Rpc."""
        if self.over:
            return
        way, message, self.message = self.way, self.message, None
        if message is None:
            raise RuntimeError("a unary call was finished without a message")
        if self.timer is None and not self.held:
            self.over, self.on_abandon = True, None
        else:
            self._end()
        way.grpc.replies[0] += 1
        if way.grpc.note is not None:
            way.grpc.note(self.head.target, self.metadata, 0, self.arrived, self.peer)
        if not way.answer_encoding:
            if type(message) is bytes:
                self.respond(way.start, PREFIX.pack(0, len(message)) + message, FINE)
            else:
                self.respond(way.start, framed(message), FINE)
        else:
            self.respond(way.start, packed(message, self.way.answer_encoding), FINE)


class Streaming(Call):
    """Any number of messages both ways."""

    since: float | None = None  # when the message that is arriving began
    waiting = False  # the method wants no more for now
    busy = False  # a message is being handed over
    met = False  # a message has been handed over

    def received(self, data: bytes, begin: int, end: int, ended: bool) -> None:
        if self.over:
            return
        if self.buffer is None:
            self.buffer = bytearray()
        self.buffer += data[begin:end]
        self._go_on()

    def overdue(self, begun: float) -> bool:
        """Between two messages a client may take its time."""
        return self.since is not None and self.since < begun

    def _go_on(self) -> None:
        """Hands over what is whole, while it is wanted."""
        if self.busy or self.over:
            return
        self.busy = True
        try:
            self._hand_over()
        except ServeError as error:
            self._refuse(error)
        finally:
            self.busy = False

    def _hand_over(self) -> None:
        while not (self.waiting or self.queued > PACE or self.over):
            buffer = self.buffer
            if buffer is None or len(buffer) < 5:
                break
            flag, length = PREFIX.unpack_from(buffer)
            self._measure(flag, length)
            if len(buffer) < 5 + length:
                break
            message = bytes(memoryview(buffer)[5 : 5 + length])
            del buffer[: 5 + length]
            self.met, self.since = True, None
            self.way.call(self._plain(flag, message), self)
        if self.over:
            return
        rest = len(self.buffer or b"")
        kept, self.held = self.held, 0
        self.connection.front.buffered -= kept
        self._keep(rest)
        if self.waiting or self.queued > PACE:
            self.hungry, self.since = False, None  # it is we who do not go on
        elif not self.remote_ended:
            if rest and self.since is None:
                self.since = perf_counter()
            self.feed()
        elif rest:
            raise ServeError("the request ended in the middle of a message", status=500)
        elif not self.met:
            self.finish()
        elif self.ended is not None:
            callback, self.ended = self.ended, None
            callback()

    def drained(self) -> None:
        if not self.hungry and self.queued <= PACE // 2:
            self._go_on()

    def hold(self) -> None:
        """See Rpc."""
        self.waiting = True

    def resume(self) -> None:
        """See Rpc."""
        self.waiting = False
        self._go_on()

    def send(self, message: Body) -> None:
        """See Rpc."""
        if self.over:
            return
        if not self.started:
            self.started = True
            self.begin(self.way.start)
        self.push(packed(message, self.way.answer_encoding))


class Refused(Stream):
    """A call that may not go ahead, answered by its head alone."""

    def __init__(self, grpc: Grpc, error: ServeError, connection: Connection, ident: int, head: Head, whole: bool):
        super().__init__(connection, ident, head, whole)
        code, text = failure(error)
        grpc.ended(self, code)
        fields = status(code, text)
        self.begin(Block([*START, *fields, ACCEPTED], last=True))


class Grpc:
    """Which stream answers which request: calls of the table, and everything else as plain HTTP."""

    def __init__(
        self, table: Mapping[bytes, Method], most: int, note: Note | None = None, admit: Admit | None = None
    ) -> None:
        self.table, self.most, self.note, self.admit = table, most, note, admit
        self.replies = [0] * len(Code)  # answers by gRPC's code

    def ended(self, call: Stream, code: int) -> None:
        """Counts the end of a call, and notes it where somebody wants to know."""
        self.replies[code] += 1
        if self.note is not None:
            self.note(call.head.target, call.head.headers, code, call.arrived, call.connection.peer)

    def plan(self, head: Head) -> Maker:
        """For `Http2`."""
        kind = head.headers.get(b"content-type", b"").lower()
        if not kind.startswith(b"application/grpc") or head.method != b"POST":
            return Plain
        if not CONTENT_TYPE(kind):
            head.error = ServeError("unknown content-type", status=415, expected="application/grpc or +proto")
            return Plain
        try:
            if head.error is not None:
                raise head.error
            method = self.table.get(head.target)
            if method is None:
                path = head.target[:200].decode("latin-1")
                raise ServeError(f"there is no {path}", status=501, hint="gRPC reflection lists what there is")
            return partial(Streaming if method.streaming else Unary, Way(self, method, head))
        except ServeError as error:
            return partial(Refused, self, error)


def status(code: int, text: str) -> list[tuple[bytes, bytes]]:
    """The trailers that end a call."""
    fields = [(b"grpc-status", b"%d" % code)]
    if text:
        # Percent-encoded as gRPC wants it: everything outside of printable ASCII, and the percent sign itself.
        short = text.encode()[:TEXT].decode(errors="ignore")
        fields.append((b"grpc-message", quote(short, safe=" !\"#$&'()*+,/:;<=>?@[\\]^`{|}~").encode()))
    return fields
