"""What the parser made of heads that came before, found again by their bytes.

A client's requests mostly begin with the very bytes of its last one, or of one of its last hundred where only the
length varies. Such a head need not be parsed again, and parsing is half of what a small request costs here.
"""

from __future__ import annotations

from typing import NamedTuple

LONGEST = 2048
MOST = 1024
END = b"\r\n\r\n"


class Head(NamedTuple):
    """A head that was found valid, of a request that leaves its connection open and has no more to say before its body.

    Args:
        begin: where the body begins.
        end: where it ends.
    """

    method: bytes
    target: bytes
    headers: dict[bytes, bytes]
    begin: int
    end: int


class Heads:
    """The heads of late, for all connections of a front."""

    def __init__(self) -> None:
        self._known: dict[bytes, Head] = {}

    def find(self, data: bytes) -> Head | None:
        """The head that `data` begins with, if it is known and nothing but its body follows."""
        head = self._known.get(data[: data.find(END, 0, LONGEST) + 4])
        return head if head is not None and head.end == len(data) else None

    def remember(self, data: bytes, method: bytes, target: bytes, headers: dict[bytes, bytes]) -> None:
        """`data` begins with this head: the first byte that the parser was given, after a whole request or none."""
        begin = data.find(END, 0, LONGEST) + 4
        if begin < 4 or data[0] in b"\r\n" or b"transfer-encoding" in headers or b"expect" in headers:
            return
        if len(self._known) >= MOST:  # somebody's heads are all different
            self._known.clear()
        size = int(headers.get(b"content-length", b"0"))
        self._known[data[:begin]] = Head(method, target, headers, begin, begin + size)
