"""A large answer on its way into the socket, a piece at a time.

The transport takes what it is given, however much that is; TLS even encrypts all of it at once. So it is given the next
piece when it has got rid of the last one, and what the client takes can be told from what it leaves.
"""

from __future__ import annotations

from collections import deque

from ox.serve.answer_memory import Parts

PIECE = 256 << 10


class Sending:
    """What is left of an answer.

    Args:
        parts: its head and its body.
        keep_alive: whether the connection goes on after it.
    """

    __slots__ = ("_parts", "keep_alive", "left", "size")

    def __init__(self, parts: Parts, keep_alive: bool) -> None:
        self._parts = deque(memoryview(part) for part in parts.parts if part)
        self.left = self.size = parts.size
        self.keep_alive = keep_alive

    def next(self) -> memoryview:
        """The next piece; not called when nothing is left."""
        part = self._parts[0]
        if len(part) > PIECE:
            self._parts[0], part = part[PIECE:], part[:PIECE]
        else:
            self._parts.popleft()
        self.left -= len(part)
        return part
