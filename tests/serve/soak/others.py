"""Who else is there: clients that wait for ever, clients that stop in the middle, one who manages the models."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from time import perf_counter
from typing import Any

IDLE = 5000
HALVES = 32
AT_ONCE = 100


class Idle(asyncio.Protocol):
    """Says nothing."""

    def __init__(self, idlers: Idlers) -> None:
        self.idlers = idlers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.idlers.open.add(transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.idlers.open.discard(self.transport)
        self.idlers.closed += 1


class Idlers:
    """Keeps thousands of connections open that never ask; the server closes them when they have idled long enough."""

    def __init__(self, port: int, count: int = IDLE) -> None:
        self.port, self.count = port, count
        self.open: set[Any] = set()
        self.closed = self.refused = self.most = 0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            for _ in range(min(AT_ONCE, self.count - len(self.open))):
                try:
                    await loop.create_connection(lambda: Idle(self), "127.0.0.1", self.port)
                except OSError:
                    self.refused += 1
                    await asyncio.sleep(0.1)
            self.most = max(self.most, len(self.open))
            await asyncio.sleep(0.02 if len(self.open) < self.count else 0.2)

    def leave(self) -> None:
        for transport in list(self.open):
            transport.abort()


async def halves(port: int, seen: Counter[str]) -> None:
    """Sends half a body and waits. The server must say 408 or close; it must not wait for ever."""

    async def one() -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(
                    b"POST /v2/models/stable/infer HTTP/1.1\r\nhost: x\r\ncontent-length: 400\r\n\r\n" + b"{" * 200
                )
                answer = await asyncio.wait_for(reader.read(4096), 60)
                seen[answer.split(b"\r\n")[0].decode() or "closed"] += 1
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
            except TimeoutError:
                seen["WAITED FOR EVER"] += 1
            except OSError as error:
                seen[type(error).__name__] += 1
                await asyncio.sleep(0.5)

    await asyncio.gather(*(one() for _ in range(HALVES)))


async def call(port: int, method: str, path: str, document: Any = None, source: str = "127.0.0.1") -> tuple[int, bytes]:
    """One request over a connection of its own, from an address of this machine."""
    body = b"" if document is None else json.dumps(document).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    try:
        head = f"{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        answer = await asyncio.wait_for(reader.read(), 60)
    finally:
        writer.close()
    head_bytes, _, rest = answer.partition(b"\r\n\r\n")
    return int(head_bytes.split()[1]), rest


async def manager(port: int, seen: Counter[str], longest: dict[str, float]) -> None:
    """Loads, unloads and looks, as an operator's tools do. What fails by itself (a file being damaged) is told so."""
    number = 0
    while True:
        number += 1
        calls: list[tuple[str, str, Any, tuple[int, ...]]] = [
            ("POST", "/v2/repository/index", {}, (200,)),
            ("GET", "/metrics", None, (200,)),
            ("GET", "/v2/models/stable/stats", None, (200,)),
            ("GET", "/v2/health/ready", None, (200,)),
            ("POST", "/v2/repository/models/stable/load", {}, (200,)),
            ("POST", "/v2/repository/models/grow/load", {}, (200, 400, 409, 503)),
            ("POST", "/v2/repository/models/broken/load", {}, (400, 409, 500, 503)),
            ("POST", "/v2/repository/models/guest/unload", {}, (200, 400, 404, 409)),
            ("POST", "/v2/repository/models/guest/load", {}, (200, 400, 404, 409, 503)),
            ("POST", "/v2/repository/models/nobody/load", {}, (400, 404)),
        ]
        method, path, document, allowed = calls[number % len(calls)]
        begun = perf_counter()
        try:
            status, body = await call(port, method, path, document)
        except (OSError, TimeoutError, IndexError, ValueError) as error:
            seen[f"WRONG {method} {path}: {type(error).__name__} {error}"] += 1
        else:
            good = status in allowed and b"Traceback" not in body
            seen["right" if good else f"WRONG {method} {path}: {status} {body[:300]!r}"] += 1
        longest[path] = round(max(longest.get(path, 0.0), perf_counter() - begun), 2)
        await asyncio.sleep(0.3)
