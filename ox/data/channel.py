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

from ox.data.wire import Blob

_HEAD = struct.Struct("<II")  # bytes of JSON, bytes behind it
_FDS = 64  # at most with one message
_GONE = (BrokenPipeError, ConnectionResetError)
_encode = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode

# The loader's own ends. A forked process, whoever forks it, must let go of them, or workers would not see their
# loader die.
_ours: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _let_go() -> None:
    for each in list(_ours):
        each.close()


os.register_at_fork(after_in_child=_let_go)


class ChannelClosed(Exception):
    """The other end is gone."""


class Channel:
    """One end of the line. Safe against interruption: a message that is half read is read on by the next call."""

    def __init__(self, line: socket.socket, ours: bool = False) -> None:
        self.line = line
        self._have = bytearray()
        self._fds: deque[int] = deque()
        self._gone = False
        if ours:
            _ours.add(line)

    def close(self) -> None:
        self.line.close()
        while self._fds:
            os.close(self._fds.popleft())

    def send(self, message: dict[str, Any], blob: Blob | None = None, fds: list[int] | None = None) -> None:
        """Send a message. What comes in while the other end does not take it is kept, so that both may send at once.

        Raises:
            ChannelClosed: the other end is gone.
        """
        text = _encode(message).encode()
        parts = blob.parts if blob is not None else []
        size = blob.size if blob is not None else 0
        rest = memoryview(b"".join([_HEAD.pack(len(text), size), text, *parts]))
        while rest:
            try:
                if fds:
                    sent = socket.send_fds(self.line, [rest], fds, socket.MSG_DONTWAIT)
                    fds = None
                else:
                    sent = self.line.send(rest, socket.MSG_DONTWAIT)
                rest = rest[sent:]
            except BlockingIOError:
                poll = select.poll()
                poll.register(self.line, select.POLLIN | select.POLLOUT)
                if any(event & select.POLLIN for _, event in poll.poll()):
                    self._read()
                    if self._gone:
                        raise ChannelClosed from None
            except (*_GONE, ValueError, OSError) as error:
                raise ChannelClosed from error

    def receive(self, wait: float | None = None) -> tuple[dict[str, Any], bytearray, list[int]] | None:
        """The next message, its bytes and its file descriptors; None when there is none after `wait` seconds.

        Raises:
            ChannelClosed: the other end is gone, and everything it sent has been received.
        """
        end = None if wait is None else time.monotonic() + wait
        while True:
            found = self._whole()
            if found is not None:
                return found
            if self._gone:
                raise ChannelClosed
            poll = select.poll()
            poll.register(self.line, select.POLLIN)
            left = None if end is None else max(0.0, end - time.monotonic()) * 1000
            if not poll.poll(left):
                return None
            self._read()

    def waiting(self) -> bool:
        """Whether a whole message has been read already, so that no event will announce it."""
        return self._gone or self._length() is not None

    def _length(self) -> tuple[int, int] | None:
        if len(self._have) < _HEAD.size:
            return None
        text, blob = _HEAD.unpack_from(self._have)
        return (text, blob) if len(self._have) >= _HEAD.size + text + blob else None

    def _whole(self) -> tuple[dict[str, Any], bytearray, list[int]] | None:
        length = self._length()
        if length is None:
            return None
        text = _HEAD.size + length[0]
        end = text + length[1]
        message = json.loads(self._have[_HEAD.size : text])
        blob = self._have[text:end]
        del self._have[:end]
        return message, blob, [self._fds.popleft() for _ in range(message.get("fds", 0))]

    def _read(self) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(self.line, 1 << 18, _FDS, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except _GONE:
            data, fds = b"", []
        self._fds.extend(fds)
        self._have += data
        self._gone = not data
