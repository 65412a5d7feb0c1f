"""The sending side of a connection. A large response is written in chunks.

A transport buffers everything that it is given; TLS even encrypts it at once. The next chunk is written when the
transport has sent the last one, and the size of the transport's buffer shows what the client has not read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from ox.serve.response_memory import Buffers

if TYPE_CHECKING:
    from ox.serve.transport.http.listener_state import ListenerState

CHUNK = 256 << 10


class LargeResponse:
    """The unsent part of a response.

    Args:
        parts: head and body.
        keep_alive: whether the connection stays open after it.
    """

    __slots__ = ("_buffers", "keep_alive", "size", "unsent")

    def __init__(self, parts: Buffers, keep_alive: bool) -> None:
        self._buffers = deque(memoryview(part) for part in parts.buffers if part)
        self.unsent = self.size = parts.size
        self.keep_alive = keep_alive

    def next_chunk(self) -> memoryview:
        """The next chunk. Call it only if `unsent` is not 0."""
        part = self._buffers[0]
        if len(part) > CHUNK:
            self._buffers[0], part = part[CHUNK:], part[:CHUNK]
        else:
            self._buffers.popleft()
        self.unsent -= len(part)
        return part


class Sender:
    """Counts what the transport of a connection has received and what the client has read.

    Args:
        listener_state: counts what the client has not read.

    Attributes:
        paused: the write buffer of the transport is full.
        large: the large response in progress; the transport is paused meanwhile.
        unread: bytes of small responses in the listener's count.
        copied: bytes of large responses in the transport, counted as response memory.
        pending_before: `pending_bytes` at the last check.
        bytes_written: bytes of large responses written to the transport.
    """

    __slots__ = (
        "_listener_state",
        "bytes_written",
        "copied",
        "large",
        "paused",
        "pending_before",
        "transport",
        "unread",
    )

    transport: asyncio.Transport

    def __init__(self, listener_state: ListenerState) -> None:
        self._listener_state = listener_state
        self.paused = False
        self.large: LargeResponse | None = None
        self.unread = self.copied = self.pending_before = self.bytes_written = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes of started responses that the client has not read."""
        left = self.transport.get_write_buffer_size()
        return left if self.large is None else left + self.large.unsent

    @property
    def bytes_sent(self) -> int:
        """Bytes of large responses that have left the transport."""
        return self.bytes_written - self.transport.get_write_buffer_size()

    def recently_sent(self) -> int:
        """See `ClientConnection`."""
        return self.pending_before - self.pending_bytes if self.paused else 0

    def pause(self) -> None:
        """The write buffer of the transport is full."""
        self.paused = True
        self.pending_before = self.pending_bytes

    def send_chunk(self, response: LargeResponse) -> bool:
        """Writes the next chunk of `large`; false if there is none."""
        if response.unsent and not self.transport.is_closing():
            chunk = response.next_chunk()
            self.bytes_written += len(chunk)
            self.transport.write(chunk)
            return True
        self.large = None
        return False

    def update_unread(self, waiting: int) -> None:
        """Updates what is counted: `waiting` bytes of queued responses, and the transport's buffer if it is full.

        A client in the middle of a large response often has a full buffer although it reads: such bytes are response
        memory, for which runs wait, and no reason to abort a connection.
        """
        pending = self.transport.get_write_buffer_size() if self.paused else 0
        copied = 0 if self.large is None else pending
        unread = waiting + pending - copied
        if copied != self.copied:
            more, self.copied = copied - self.copied, copied
            self._listener_state.add_copied(more)
        if unread != self.unread:
            more, self.unread = unread - self.unread, unread
            self._listener_state.add_unread(more)

    def close(self) -> None:
        """The connection has ended: releases what it counted."""
        self.large, self.paused = None, False
        self.update_unread(0)
