"""Clients of a decoder over HTTP that come, stop reading, cancel, send nonsense and return."""

from __future__ import annotations

import asyncio
import json
import random
import socket
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from time import perf_counter

from text_cases import StreamedChoices, TextCase, TextCases, refusal_problem, whole_choices

# What clients do, how often, and which outcomes are right.
DEEDS = {"read": 5, "whole": 3, "leave": 4, "pause": 2, "stop reading": 1, "bad": 2, "half": 1}
FINE = {
    "leave": ("left", "right"), "half": ("left",), "bad": ("refused",), "stop reading": ("ended for slowness", "right")
}  # fmt: skip
PATIENCE_S = 120.0


@dataclass
class TextBook:
    """What became of every request, by what its client did and the outcome."""

    stop: float
    sent: Counter[str] = field(default_factory=Counter)
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)

    def note(self, deed: str, outcome: str) -> None:
        self.seen[deed, outcome] += 1

    def problems(self) -> list[str]:
        """What may not be; "busy" is counted, and may be said to one request of a hundred."""
        wrong = [
            f"{count} x {deed}: {outcome}"
            for (deed, outcome), count in self.seen.items()
            if outcome not in (*FINE.get(deed, ("right",)), "busy")
        ]
        busy = sum(count for (_, outcome), count in self.seen.items() if outcome == "busy")
        if busy > self.sent.total() / 100:
            wrong.append(f"{busy} of {self.sent.total()} requests were told that the server is busy")
        for deed, sent in self.sent.items():
            known = sum(count for (other, _), count in self.seen.items() if other == deed)
            if known != sent:
                wrong.append(f"{sent - known} requests of '{deed}' without an outcome")
        return wrong

    def line(self) -> str:
        return ", ".join(f"{deed} {outcome[:60]} {count:,}" for (deed, outcome), count in sorted(self.seen.items()))


class Cut(Exception):
    """The server has closed the connection in the middle of an answer."""


class TextConnection:
    """One connection, and the answers that come over it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.status = 0
        self._headers: dict[bytes, bytes] = {}

    @classmethod
    async def open(cls, port: int, slow: bool) -> TextConnection:
        """A slow one has small buffers, so that the server notices when it is not read."""
        link = socket.socket()
        link.setblocking(False)
        if slow:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        try:
            await asyncio.get_running_loop().sock_connect(link, ("127.0.0.1", port))
            return cls(*await asyncio.open_connection(sock=link, limit=8192 if slow else 1 << 16))
        except BaseException:
            link.close()
            raise

    def send(self, path: str, body: bytes, length: int | None = None) -> None:
        length = len(body) if length is None else length
        head = f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        self._writer.write(head.encode() + body)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Of the body of an answer, once its status is known.

        Raises:
            Cut: the connection ended before the answer did.
        """
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            self.status = int(lines[0].split()[1])
            headers = dict(line.split(b": ", 1) for line in lines[1:] if line)
            if b"content-length" in headers:
                yield await self._reader.readexactly(int(headers[b"content-length"]))
                return
            yield b""
            while size := int(await self._reader.readuntil(b"\r\n"), 16):
                yield (await self._reader.readexactly(size + 2))[:-2]
            await self._reader.readexactly(2)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise Cut(type(error).__name__) from None

    def leave(self) -> None:
        self._writer.transport.abort()


class TextClient:
    """One that behaves by chance.

    Args:
        port: of the server.
        cases: what it may ask.
        book: gets what became of it.
        write_s: the server ends a connection that is not read for so long.
    """

    def __init__(self, port: int, seed: int, cases: TextCases, book: TextBook, write_s: float) -> None:
        self._port, self._book, self._write_s = port, book, write_s
        self._chance = random.Random(seed)
        self._cases = cases
        self._link: TextConnection | None = None

    async def run(self) -> None:
        """Until the book's end, and what was asked by then has its outcome."""
        while perf_counter() < self._book.stop:
            (deed,) = self._chance.choices(list(DEEDS), list(DEEDS.values()))
            self._book.sent[deed] += 1
            try:
                outcome = await asyncio.wait_for(self._do(deed), PATIENCE_S)
            except TimeoutError:
                outcome = "WAITED FOR EVER"
            except Cut as error:
                outcome = "ended for slowness" if deed == "stop reading" else f"CUT ({error})"
            except OSError as error:
                outcome = f"NO CONNECTION ({type(error).__name__})"
            except (ValueError, KeyError, TypeError) as error:
                outcome = f"AN ANSWER OF ANOTHER FORM: {type(error).__name__} {error}"
            self._book.note(deed, outcome)
            if outcome not in ("right", "refused") or self._chance.random() < 0.5:
                self._drop()
            if self._chance.random() < 0.3:
                await asyncio.sleep(self._chance.random() * 0.2)
        self._drop()

    def _drop(self) -> None:
        if self._link is not None:
            self._link.leave()
            self._link = None

    async def _do(self, deed: str) -> str:
        slow = deed in ("pause", "stop reading")
        if slow:
            self._drop()
        self._link = self._link or await TextConnection.open(self._port, slow)
        if deed == "bad":
            return await self._ask_badly(self._link)
        case = self._chance.choice(self._cases.long if slow else self._cases.usual)
        body = json.dumps(case.body if deed == "whole" else {**case.body, "stream": True}).encode()
        if deed == "half":
            self._link.send(case.path, body[: len(body) // 2], len(body))
            await asyncio.sleep(self._chance.random() * 0.5)
            return "left"
        self._link.send(case.path, body)
        return await self._read(self._link, deed, case)

    async def _ask_badly(self, link: TextConnection) -> str:
        path, body, expected = self._chance.choice(self._cases.bad)
        link.send(path, body)
        answer = b"".join([piece async for piece in link.pieces()])
        return refusal_problem(link.status, answer, expected) or "refused"

    async def _read(self, link: TextConnection, deed: str, case: TextCase) -> str:
        """The answer to a request, as far as this client reads it."""
        streamed, whole = StreamedChoices(case.path), b""
        leaves = self._chance.randrange(12) if deed == "leave" else -1  # after so many pieces
        if leaves == 0:
            await asyncio.sleep(self._chance.random() * 0.3)
            return "left"
        count = 0
        async for piece in link.pieces():
            if link.status != 200 or deed == "whole":
                whole += piece
                continue
            streamed.add(piece)
            count += 1
            if count == leaves:
                return "left"
            if deed == "pause" and count in (2, 40):
                await asyncio.sleep(self._chance.uniform(0.1, 0.4) * self._write_s)
            elif deed == "stop reading" and count == 2:
                await asyncio.sleep(2.5 * self._write_s)
        if link.status != 200:
            busy = link.status == 503 and refusal_problem(link.status, whole, 503) is None
            return "busy" if busy else f"STATUS {link.status}: {whole[:200]!r}"
        if deed == "whole":
            return case.problem(whole_choices(case.path, whole)) or "right"
        if streamed.problem is None and not streamed.done:
            return "A STREAM WITHOUT [DONE]"
        return streamed.problem or case.problem(streamed.choices()) or "right"
