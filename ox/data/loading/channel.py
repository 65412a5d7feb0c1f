"""Messages between the loader and a worker: JSON, bytes and file descriptors over a pair of sockets."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import time
import weakref
from collections import deque
from typing import Any

from ox.data.loading.serialize import Blob

_HEAD = struct.Struct("<II")  # number of bytes of JSON, and of binary data after it
_FDS = 64  # the most file descriptors in one message
_CLOSED_ERRORS = (BrokenPipeError, ConnectionResetError)
_encode = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode

# The sockets of the loader. A forked child must close them; otherwise workers would not notice that the loader died.
_loader_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _close_in_child() -> None:
    for each in list(_loader_sockets):
        each.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


class ChannelClosed(Exception):
    """The other end is closed."""


class Channel:
    """One end of the connection. An interrupted `receive` loses nothing: the next call continues."""

    def __init__(self, connection: socket.socket, of_loader: bool = False) -> None:
        self.socket = connection
        self._buffer = bytearray()
        self._fds: deque[int] = deque()
        self._closed = False
        if of_loader:
            _loader_sockets.add(connection)

    def close(self) -> None:
        self.socket.close()
        while self._fds:
            os.close(self._fds.popleft())

    def send(self, message: dict[str, Any], blob: Blob | None = None, fds: list[int] | None = None) -> None:
        """Sends a message. While the other end is not reading, incoming data is buffered, so both ends may send at
        once.

        Raises:
            ChannelClosed: the other end is closed.
        """
        text = _encode(message).encode()
        parts = blob.parts if blob is not None else []
        size = blob.size if blob is not None else 0
        rest = memoryview(b"".join([_HEAD.pack(len(text), size), text, *parts]))
        while rest:
            try:
                if fds:
                    sent = socket.send_fds(self.socket, [rest], fds, socket.MSG_DONTWAIT)
                    fds = None
                else:
                    sent = self.socket.send(rest, socket.MSG_DONTWAIT)
                rest = rest[sent:]
            except BlockingIOError:
                poll = select.poll()
                poll.register(self.socket, select.POLLIN | select.POLLOUT)
                if any(event & select.POLLIN for _, event in poll.poll()):
                    self._read()
                    if self._closed:
                        raise ChannelClosed from None
            except (*_CLOSED_ERRORS, ValueError, OSError) as error:
                raise ChannelClosed from error

    def receive(self, wait: float | None = None) -> tuple[dict[str, Any], bytearray, list[int]] | None:
        """The next message, its binary data and its file descriptors; None if none arrives in `wait` seconds.

        Raises:
            ChannelClosed: the other end is closed, and everything it sent has been received.
        """
        end = None if wait is None else time.monotonic() + wait
        while True:
            found = self._next_message()
            if found is not None:
                return found
            if self._closed:
                raise ChannelClosed
            poll = select.poll()
            poll.register(self.socket, select.POLLIN)
            left = None if end is None else max(0.0, end - time.monotonic()) * 1000
            if not poll.poll(left):
                return None
            self._read()

    def has_message(self) -> bool:
        """Whether a complete message is buffered, for which `poll` reports no event."""
        return self._closed or self._length() is not None

    def _length(self) -> tuple[int, int] | None:
        if len(self._buffer) < _HEAD.size:
            return None
        text, blob = _HEAD.unpack_from(self._buffer)
        return (text, blob) if len(self._buffer) >= _HEAD.size + text + blob else None

    def _next_message(self) -> tuple[dict[str, Any], bytearray, list[int]] | None:
        length = self._length()
        if length is None:
            return None
        text = _HEAD.size + length[0]
        end = text + length[1]
        message = json.loads(self._buffer[_HEAD.size : text])
        blob = self._buffer[text:end]
        del self._buffer[:end]
        return message, blob, [self._fds.popleft() for _ in range(message.get("fds", 0))]

    def _read(self) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(self.socket, 1 << 18, _FDS, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except _CLOSED_ERRORS:
            data, fds = b"", []
        self._fds.extend(fds)
        self._buffer += data
        self._closed = not data
