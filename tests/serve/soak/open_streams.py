"""The part with 10,000 open streams: others are unharmed, memory is bounded, and what is too much is told so."""

from __future__ import annotations

import asyncio
import json
import resource
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from crowd import Failed
from others import AT_ONCE, call
from server import Server
from text_cases import COMPLETIONS, PROMPTS, TextCase, TextCases, whole_choices
from texts import CACHE_MIB, Neighbour, Texts, put_decoder

STREAMS = 10_000
FILES = 600  # of this process, for everything else
QUEUE, LATE = 50, 200  # more than the streams may wait in the queue, and so many more come
SPARE = 300  # connections that the server allows beside the streams
STREAM_KB = 40.0  # of the server's memory for each stream
OTHER_S = 60.0  # the longest that a text of somebody else takes meanwhile


class OpenStream(asyncio.Protocol):
    """Asks for a stream, and keeps it open. `status` is that of the answer, 0 before there is one."""

    def __init__(self, request: bytes, reads: bool) -> None:
        self._request, self._reads = request, reads
        self.status, self.begin, self._end = 0, b"", b""
        self.open = True

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if len(self.begin) < 1000:
            self.begin += data
        self._end = (self._end + data)[-40:]
        if not self.status and len(self.begin) > 12:
            self.status = int(self.begin[9:12])
            if self.status == 200 and not self._reads:
                self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False

    @property
    def good(self) -> bool:
        """It is open, or its text has come to its end."""
        return self.open or b"data: [DONE]" in self._end


async def open_all(port: int, count: int, request: bytes) -> list[OpenStream]:
    """Every second one stops reading after its first event."""
    streams: list[OpenStream] = []
    loop = asyncio.get_running_loop()
    while len(streams) < count:
        more = [OpenStream(request, number % 2 == 0) for number in range(min(AT_ONCE, count - len(streams)))]
        await asyncio.gather(*(loop.create_connection(lambda s=s: s, "127.0.0.1", port) for s in more))  # type: ignore[misc]
        streams += more
    return streams


async def ask_elsewhere(port: int, case: TextCase) -> str | None:
    """Asks for a text from another address, which is another client for the server; what is wrong with the answer."""
    status, body = await call(port, "POST", case.path, case.body, "127.0.0.2")
    return case.problem(whole_choices(case.path, body)) if status == 200 else f"somebody else: {status} {body[:200]!r}"


async def refusals_beyond(port: int, count: int) -> int:
    """How many of so many connections are told that there are too many."""
    links = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    answers = [asyncio.create_task(reader.read(1000)) for reader, _ in links]
    await asyncio.wait(answers, timeout=3)
    told = sum(task.done() and b"503" in task.result() and b"too many connections" in task.result() for task in answers)
    for task, (_, writer) in zip(answers, links, strict=True):
        task.cancel()
        writer.transport.abort()
    await asyncio.gather(*answers, return_exceptions=True)
    return told


async def streams_part(folder: Path, seconds: float, report: Callable[[str], None], decoder: Path | None) -> None:
    """Raises Failed: something is not so."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(STREAMS, files - FILES)
    if count < STREAMS:
        report(f"only {count:,} streams: this process may open {files:,} files")
    world = await asyncio.to_thread(put_decoder, folder / "streams", decoder)
    options = {
        "deadline_ms": 1e6, "max_queue": count + QUEUE, "generation": {"cache_mib": CACHE_MIB[decoder is not None]}
    }  # fmt: skip
    with (folder / "streams.log").open("w") as log:
        server = Server(world.folder, stderr=log, limits={"connections": count + SPARE}, options=options)
    try:
        problems = await _run(server, count, seconds, report)
        code, took = await asyncio.to_thread(server.stop)
    finally:
        server.kill()
    report(f"stopped with {code} in {took:.1f} s")
    problems += [f"exit code {code}"] if code else []
    if problems:
        raise Failed("; ".join(problems[:12]))


async def _run(server: Server, count: int, seconds: float, report: Callable[[str], None]) -> list[str]:
    _, body = await call(server.port, "GET", "/v1/models")
    (context,) = (entry["max_model_len"] for entry in json.loads(body)["data"] if entry["id"] == "writer")
    cases, texts = TextCases("writer", context), Texts(server)
    problems = await cases.ask_alone(server.port) + await texts.rest()
    memory, open_files = server.memory_mb(), server.open_files()
    asked = {"model": "writer", "prompt": PROMPTS[1], "max_tokens": context // 2, "stream": True, "ignore_eos": True}
    text = json.dumps(asked).encode()
    request = f"POST {COMPLETIONS} HTTP/1.1\r\nhost: a\r\ncontent-length: {len(text)}\r\n\r\n".encode() + text
    begun = perf_counter()
    streams = await open_all(server.port, count, request)
    opened = perf_counter() - begun
    neighbour = Neighbour(server.port)
    asking = asyncio.create_task(neighbour.run())
    waits: list[float] = []
    while perf_counter() < begun + opened + seconds:
        since = perf_counter()
        problem = await ask_elsewhere(server.port, cases.usual[len(waits) % len(cases.usual)])
        problems += [problem] if problem else []
        waits.append(perf_counter() - since)
        await asyncio.sleep(0.5)
    most, now = server.memory_mb(), await texts.metrics()
    neighbour.stop = True
    await asking
    alive, good = sum(stream.open for stream in streams), sum(stream.good for stream in streams)
    told = Counter(stream.status for stream in streams)
    late = await open_all(server.port, LATE, request)
    problem = await ask_elsewhere(server.port, cases.usual[0])  # the queue is full, and others still get a text
    problems += [problem] if problem else []
    room = count + SPARE - (await texts.metrics())["ox_connections"]
    refused = await refusals_beyond(server.port, int(room) + 20)
    busy = [stream.begin for stream in late if stream.status not in (0, 200)]
    streams += late
    for stream in streams:
        stream.transport.abort()
    begun = perf_counter()
    problems += await texts.rest()
    rested = perf_counter() - begun
    problems += neighbour.wrong[:3] + await cases.ask_alone(server.port) + await texts.rest()
    for line in (
        f"{count:,} streams in {opened:.1f} s, {alive:,} open, by status {dict(told)}, "
        f"{now['ox_texts_running']:.0f} running, {now['ox_texts_waiting']:,.0f} waiting",
        f"of {LATE} more {len(busy)} were told that the server is busy, and {refused} connections that are too many",
        f"memory {memory:.0f} MB, {most:.0f} with all of them ({1000 * (most - memory) / count:.1f} kB each), "
        f"{server.memory_mb():.0f} afterwards",
        f"texts of somebody else: {len(waits)}, the slowest after {max(waits):.1f} s; another model: "
        f"{neighbour.asked} answers, the slowest after {1000 * neighbour.slowest:.0f} ms",
        f"all have left, and {rested:.1f} s later everything is as before; open files {open_files}, then "
        f"{server.open_files()}",
    ):
        report(line)
    if set(told) - {0, 200} or good != count:
        problems.append(f"{good} of {count} streams are open or have ended right, by status {dict(told)}")
    if not busy or not all(begin.startswith(b"HTTP/1.1 503") and b"the server is busy" in begin for begin in busy):
        problems.append(f"{len(busy)} late streams were refused: {busy[:1]}")
    if not 10 <= refused <= 30:
        problems.append(f"{refused} connections beyond the limit were told so")
    if most > memory + STREAM_KB * count / 1000:
        problems.append(f"memory grew from {memory:.0f} to {most:.0f} MB")
    if max(waits) > OTHER_S:
        problems.append(f"a text of somebody else took {max(waits):.0f} s")
    if server.open_files() > open_files:
        problems.append(f"{server.open_files()} open files, {open_files} before")
    return problems
