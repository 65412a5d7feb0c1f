"""HTTP/2 on a bare asyncio.Protocol: frames in, streams out, limits and timeouts on everything (RFC 9113).

A request becomes a `Stream` as soon as its head is there; what the stream does is the business of whoever made it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ox.serve.http2.control import CREDIT, FRAME_SIZE, Control
from ox.serve.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME,
    FRAME_SIZE_ERROR,
    HEAD,
    HEADERS,
    INTERNAL_ERROR,
    MOST,
    PADDED,
    PREFACE,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    SETTINGS,
    STREAM_CLOSED,
    WITH_PRIORITY,
    ConnectionFault,
    StreamFault,
    window_update,
)
from ox.serve.http2.headers import Blocks, Head, Maker, check_trailers
from ox.serve.http2.stream import Stream

if TYPE_CHECKING:
    from ox.serve.http.front import Front

log = logging.getLogger("ox.serve")

LOW = CREDIT // 2  # left of it when the client gets more
PIECES = 32  # frames of one header block


class Connection(Control):
    """One client."""

    def __init__(self, front: Front, plan: Callable[[Head], Maker]) -> None:
        super().__init__(front)
        self.plan = plan
        self.blocks = Blocks(self.limits.header_bytes, self.limits.header_count)
        self.heads = self.blocks.known
        self.gaps: list[tuple[int, int]] = []  # streams that the client passed over

    # ---- asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        if self.stopped:
            return
        self.quiet = False
        if self.rest:
            self.rest += data
            if len(self.rest) < self.need:
                return
            data = bytes(self.rest)
            self.rest = bytearray()
        try:
            at = self._read(data)
        except ConnectionFault as fault:
            self.finish(fault)
        except Exception as error:
            log.error("an HTTP/2 connection failed", exc_info=error)
            self.finish(ConnectionFault(INTERNAL_ERROR, "the server failed"))
        else:
            if at < len(data) and not self.stopped:
                self.rest += data[at:]
                self.waiting_since = self.front.loop.time()

    # ---- frames

    def _read(self, data: bytes) -> int:
        """Handles the whole frames and says where the rest begins."""
        at, size = 0, len(data)
        if self.greeting:
            if not PREFACE.startswith(data[: len(PREFACE)]):
                raise ConnectionFault(PROTOCOL_ERROR, "this is not HTTP/2")
            if size < len(PREFACE):
                self.need = len(PREFACE)
                return 0
            self.greeting = False
            at = len(PREFACE)
        unpack, streams = FRAME.unpack_from, self.streams
        self.need = HEAD
        while size - at >= HEAD and not self.stopped:
            high, low, kind, flags, ident = unpack(data, at)
            length = high << 16 | low
            begin = at + HEAD
            end = begin + length
            if length > FRAME_SIZE:
                raise ConnectionFault(FRAME_SIZE_ERROR, f"a frame is larger than {FRAME_SIZE}")
            if end > size:
                self.need = HEAD + length
                break
            at = end
            ident &= MOST
            if self.expected is not None:
                self._expect(kind, flags, ident)
            try:
                if kind == DATA:
                    self.credit -= length
                    if self.credit < LOW:
                        self._grant()
                    stream = streams.get(ident)
                    if stream is None or stream.remote_ended:
                        self._stray(ident, stream)
                        continue
                    if flags & PADDED:
                        begin, end = self._unpadded(data, begin, end)
                        stream.granted -= length - (end - begin)
                    stream.size = total = stream.size + end - begin
                    if flags & END_STREAM:
                        if total > stream.granted:
                            raise StreamFault(FLOW_CONTROL_ERROR)
                        if total != stream.head.length and stream.head.length is not None:
                            raise StreamFault(PROTOCOL_ERROR)
                        stream.remote_ended = True
                        stream.received(data, begin, end, True)
                    else:
                        self._piece(stream, data, begin, end)
                elif kind == HEADERS:
                    if flags & (PADDED | WITH_PRIORITY):
                        begin, end = self._bare(data, begin, end, flags, ident)
                    if flags & END_HEADERS:
                        self._headers(ident, data[begin:end], flags & END_STREAM)
                    else:
                        self._begin_block(ident, flags, data[begin:end])
                elif kind == CONTINUATION:
                    self._continue_block(flags, data[begin:end])
                else:
                    self.other(kind, flags, ident, data[begin:end])
            except StreamFault as fault:
                self._fault(ident, fault.code)
        return at

    def _expect(self, kind: int, flags: int, ident: int) -> None:
        """Only one kind of frame may come now."""
        if self.block is None:
            if kind != SETTINGS or flags & ACK:
                raise ConnectionFault(PROTOCOL_ERROR, "the first frame is not SETTINGS")
        elif kind != CONTINUATION or ident != self.block_stream:
            raise ConnectionFault(PROTOCOL_ERROR, "a header block was interrupted")
        self.expected = None

    def _grant(self) -> None:
        """Gives the connection its window back."""
        if self.credit < 0:
            raise ConnectionFault(FLOW_CONTROL_ERROR, "more than the window of the connection")
        self.write(window_update(0, CREDIT - self.credit))
        self.credit = CREDIT

    def _piece(self, stream: Stream, data: bytes, begin: int, end: int) -> None:
        """DATA that is not the last."""
        if stream.size > stream.granted:
            raise StreamFault(FLOW_CONTROL_ERROR)
        if stream.head.length is not None and stream.size > stream.head.length:
            raise StreamFault(PROTOCOL_ERROR)
        if begin == end:
            self.control.spend()
            return
        stream.received(data, begin, end, False)
        if stream.hungry:
            stream.feed()

    def _unpadded(self, data: bytes, begin: int, end: int) -> tuple[int, int]:
        if begin == end:
            raise ConnectionFault(FRAME_SIZE_ERROR, "a padded frame is empty")
        if begin + 1 + data[begin] > end:
            raise ConnectionFault(PROTOCOL_ERROR, "more padding than frame")
        return begin + 1, end - data[begin]

    def _bare(self, data: bytes, begin: int, end: int, flags: int, ident: int) -> tuple[int, int]:
        """The header block of a HEADERS frame without padding and priority."""
        if flags & PADDED:
            begin, end = self._unpadded(data, begin, end)
        if flags & WITH_PRIORITY:
            if end - begin < 5:
                raise ConnectionFault(FRAME_SIZE_ERROR, "a frame has no room for its priority")
            if int.from_bytes(data[begin : begin + 4], "big") & MOST == ident:
                raise ConnectionFault(PROTOCOL_ERROR, "a stream depends on itself")
            begin += 5
        return begin, end

    def _begin_block(self, ident: int, flags: int, piece: bytes) -> None:
        self.block, self.block_stream, self.block_flags, self.block_pieces = bytearray(), ident, flags, 0
        self.waiting_since = self.front.loop.time()
        self._continue_block(0, piece)

    def _continue_block(self, flags: int, piece: bytes) -> None:
        if self.block is None:
            raise ConnectionFault(PROTOCOL_ERROR, "nothing to continue")
        self.block += piece
        self.block_pieces += 1
        if len(self.block) > self.limits.header_bytes or self.block_pieces > PIECES:
            raise ConnectionFault(ENHANCE_YOUR_CALM, "a header block does not end")
        if flags & END_HEADERS:
            block, self.block = bytes(self.block), None
            self._headers(self.block_stream, block, self.block_flags & END_STREAM)
        else:
            self.expected = CONTINUATION

    def _headers(self, ident: int, block: bytes, ended: int) -> None:
        """A whole header block."""
        if ident <= self.last or not ident & 1:
            self._trailers(ident, block, ended)
            return
        if ident > self.last + 2:
            self.gaps = [*self.gaps[-7:], (self.last, ident)]
        self.last = ident
        head = self.heads.get(block)
        if head is None:
            head = self.blocks.head(block)
            head.make = self.plan(head)
        if self.refusing or len(self.streams) >= self.limits.streams or self.small > self.limits.reply:
            raise StreamFault(REFUSED_STREAM)
        if not ended:
            head.make(self, ident, head, False)
        elif head.length:
            raise StreamFault(PROTOCOL_ERROR)
        else:
            stream = head.make(self, ident, head, True)
            if not stream.local_ended:
                stream.received(b"", 0, 0, True)

    def _trailers(self, ident: int, block: bytes, ended: int) -> None:
        """A header block on a stream that began before."""
        if not ident & 1:
            raise ConnectionFault(PROTOCOL_ERROR, "not a stream that a client may begin")
        if any(low < ident < high for low, high in self.gaps):
            raise ConnectionFault(PROTOCOL_ERROR, "a stream that was passed over")
        fields = self.blocks.fields(block)  # in any case, or the table would be wrong
        stream = self.streams.get(ident)
        if stream is None or stream.remote_ended:
            self._stray(ident, stream)
        elif not ended:
            raise StreamFault(PROTOCOL_ERROR)
        else:
            check_trailers(fields)
            if stream.head.length not in (None, stream.size):
                raise StreamFault(PROTOCOL_ERROR)
            stream.remote_ended = True
            stream.received(b"", 0, 0, True)

    def _stray(self, ident: int, stream: Stream | None) -> None:
        """Something for a stream that takes nothing any more."""
        if ident > self.last or ident == 0 or not ident & 1:
            raise ConnectionFault(PROTOCOL_ERROR, "a stream that was not begun")
        if stream is not None:
            raise StreamFault(STREAM_CLOSED)
        if ident not in self.gone:
            raise ConnectionFault(STREAM_CLOSED, "a stream that has ended")
        self.control.spend()

    def _fault(self, ident: int, code: int) -> None:
        """A stream ends because of what the client did, which is as good as if it had reset it: a flood of either ends
        the connection."""
        self.resets.spend()
        stream = self.streams.get(ident)
        if stream is None:
            self.tell_reset(ident, code)
            return
        stream.reset(code)
        stream.abandoned()
