"""A client of HTTP/1.1. Heads repeat, so each is parsed once and then recognised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ox.bench.answer import OK, Reply
from ox.bench.client import Client

if TYPE_CHECKING:
    from ox.bench.pool import Pool

LARGEST_HEAD = 65_536
MAX_CACHED_HEADS = 1024


@dataclass(frozen=True)
class Head:
    status: int
    length: int | None  # None: chunked
    json_length: int | None
    close: bool


def parse_head(data: bytes) -> Head:
    """Raises ValueError for what is no head of an answer whose end can be known."""
    start, *lines = data[:-4].split(b"\r\n")
    version, _, rest = start.partition(b" ")
    if version not in (b"HTTP/1.1", b"HTTP/1.0") or not rest[:3].isdigit():
        raise ValueError(f"no status line: {start[:60]!r}")
    headers: dict[bytes, bytes] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon:
            raise ValueError(f"no header: {line[:60]!r}")
        headers[name.strip().lower()] = value.strip()
    status = int(rest[:3])
    close = version == b"HTTP/1.0" or b"close" in headers.get(b"connection", b"").lower()
    length: int | None
    if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        length = None
    elif status in (204, 304):
        length = 0
    elif b"content-length" in headers:
        length = _number(headers[b"content-length"])
    else:
        raise ValueError("neither content-length nor chunks")
    held = headers.get(b"inference-header-content-length")
    return Head(status, length, None if held is None else _number(held), close)


def unchunk(data: bytes | bytearray, at: int) -> tuple[bytes, int] | None:
    """The body whose chunks begin at `at`, and where it ends; None while it is not whole. Raises ValueError."""
    parts = []
    while True:
        end = data.find(b"\r\n", at)
        if end < 0:
            return None
        size = int(bytes(data[at:end]).partition(b";")[0], 16)
        at = end + 2
        if size == 0:
            break
        if len(data) < at + size + 2:
            return None
        if data[at + size : at + size + 2] != b"\r\n":
            raise ValueError("a chunk without its end")
        parts.append(bytes(data[at : at + size]))
        at += size + 2
    while True:  # trailers
        end = data.find(b"\r\n", at)
        if end < 0:
            return None
        if end == at:
            return b"".join(parts), end + 2
        at = end + 2


class HttpClient(Client):
    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self.buffer = bytearray()
        self.heads: dict[bytes, Head] = pool.heads

    def send(self, request: bytes) -> None:
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        whole: bytes | bytearray = data
        if self.buffer:
            self.buffer += data
            whole = self.buffer
        if not self.busy:
            self._unsolicited_response(bytes(whole))
            return
        cut = whole.find(b"\r\n\r\n")
        try:
            if cut < 0:
                if len(whole) > LARGEST_HEAD:
                    raise ValueError("a head without end")
                self._wait(data)
                return
            head = self._head(bytes(whole[: cut + 4]))
            body: bytes | bytearray
            if head.length is None:
                found = unchunk(whole, cut + 4)
                if found is None:
                    self._wait(data)
                    return
                body, end = found
            else:
                end = cut + 4 + head.length
                if len(whole) < end:
                    self._wait(data)
                    return
                body = whole[cut + 4 : end]
        except ValueError as error:
            self.fail("wrong: not HTTP", str(error))
            return
        if len(whole) > end:
            self.fail("wrong: unexpected bytes", repr(bytes(whole[end : end + 80])))
            return
        if self.buffer:
            body, self.buffer = bytes(body), bytearray()
        if head.close:  # the answer counts; the next request needs another connection
            self.lost = True
            self.transport.abort()
        if body == self.known[self.place] and head.status == OK:
            self.right()
        else:
            self.answered(Reply(head.status, bytes(body), head.json_length))
        if head.close:
            self.pool.lost(self)

    def eof_received(self) -> bool | None:
        return None

    def _unsolicited_response(self, data: bytes) -> None:
        """A server at its connection limit responds before the first request."""
        head, _, body = data.partition(b"\r\n\r\n")
        try:
            status = parse_head(head + b"\r\n\r\n").status
        except ValueError:
            status = OK
        if status == OK:
            self.fail("wrong: unexpected bytes", repr(data[:80]))
        else:
            self.fail(f"HTTP {status}", body[:300].decode("utf-8", "replace"))

    def _wait(self, data: bytes) -> None:
        if not self.buffer:
            self.buffer += data

    def _head(self, data: bytes) -> Head:
        head = self.heads.get(data)
        if head is None:
            head = parse_head(data)
            if len(self.heads) >= MAX_CACHED_HEADS:  # heads that differ each time, by a date with milliseconds or an id
                self.heads.clear()
            self.heads[data] = head
        return head


def _number(text: bytes) -> int:
    if not text.isdigit() or len(text) > 12:
        raise ValueError(f"no length: {text[:40]!r}")
    return int(text)
