"""Server-sent events of a completion, in an HTTP response."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ox.bench.http1 import LARGEST_HEAD, Head, parse_head


class StreamReader:
    """Takes an HTTP response apart while it comes.

    Attributes:
        head: None before it is whole.
        body: what is not part of an event yet.
        ended: whether the response is whole.
    """

    def __init__(self) -> None:
        self.head: Head | None = None
        self.body = bytearray()
        self.ended = False
        self._data = bytearray()
        self._length = 0

    def feed(self, data: bytes) -> list[bytes]:
        """More of the response.

        Returns:
            the data of server-sent events that are whole now; nothing of a response with another status than 200.

        Raises:
            ValueError: it is not HTTP, or more than one response.
        """
        self._data += data
        if self.head is None:
            cut = self._data.find(b"\r\n\r\n")
            if cut < 0:
                if len(self._data) > LARGEST_HEAD:
                    raise ValueError("a head without end")
                return []
            self.head = parse_head(bytes(self._data[: cut + 4]))
            del self._data[: cut + 4]
        if self.head.length is None:
            self._read_chunks()
        else:
            self.body += self._data
            self._length += len(self._data)
            self._data.clear()
            self.ended = self._length >= self.head.length
            if self._length > self.head.length:
                raise ValueError("more than one response")
        if self.ended and self._data:
            raise ValueError("more than one response")
        if self.head.status != 200:
            return []
        whole, _, rest = self.body.rpartition(b"\n\n")
        self.body = rest
        return self.events(whole)

    def _read_chunks(self) -> None:
        while not self.ended:
            end = self._data.find(b"\r\n")
            if end < 0:
                return
            size = int(bytes(self._data[:end]).partition(b";")[0], 16)
            if size == 0:
                last = self._data.find(b"\r\n\r\n", end)  # after trailers
                if last < 0:
                    return
                del self._data[: last + 4]
                self.ended = True
                return
            whole = end + 2 + size + 2
            if len(self._data) < whole:
                return
            if self._data[whole - 2 : whole] != b"\r\n":
                raise ValueError("a chunk without its end")
            self.body += self._data[end + 2 : whole - 2]
            del self._data[:whole]

    @staticmethod
    def events(body: bytes | bytearray) -> list[bytes]:
        """The data of server-sent events; comments, which keep a connection open, have none."""
        lines = bytes(body).replace(b"\r\n", b"\n").split(b"\n")
        return [line.removeprefix(b"data:").strip() for line in lines if line.startswith(b"data:")]


def usage_of(documents: Iterable[Any]) -> tuple[int, int] | None:
    """The tokens of the prompt and of the text, of the last event that has them."""
    usage = None
    for document in documents:
        if isinstance(document, dict) and isinstance(counts := document.get("usage"), dict):
            usage = int(counts.get("prompt_tokens", 0)), int(counts.get("completion_tokens", 0))
    return usage
