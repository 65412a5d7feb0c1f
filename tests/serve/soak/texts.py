"""The part with a decoder: 200 clients that come, stop reading, cancel, send nonsense and return."""

from __future__ import annotations

import asyncio
import json
import shutil
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from crowd import Failed
from others import call
from server import ROOT, Server
from text_cases import TextCases
from text_clients import TextBook, TextClient
from text_grpc import TextGrpcClient
from world import STABLE, World

WRITE_S = 3.0  # a client that stops reading is ended after so long
GRPC_SHARE = 5  # of so many clients one speaks gRPC
GROWTH = 1.10, 24.0  # memory at the end: at most this factor, and so many MB, above what it was once warm
REST_S = 40.0  # by then a server whose clients have left is as before them
EXECUTOR_THREADS = 32  # of an event loop, which grow up to a limit and stay
CACHE_MIB = {True: 24, False: 1}  # of a given decoder, of the small one: too little for all texts that run


def write_small_decoder(folder: Path) -> Path:
    """One with random weights and 1,024 tokens of context."""
    sys.path.append(str(ROOT / "tests"))
    from tiny_decoder import write_decoder

    path: Path = write_decoder(folder, context_length=1024)
    return path


def put_decoder(folder: Path, decoder: Path | None) -> World:
    """A repository with the decoder `writer` beside the usual models."""
    world = World(folder / "models")
    source = decoder or write_small_decoder(folder)
    shutil.copytree(source, world.folder / "writer")
    return world


class Texts:
    """What the metrics and the system say of a server with a decoder."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def metrics(self) -> dict[str, float]:
        """By name, those of the decoder and the connections."""
        _, body = await call(self._server.port, "GET", "/metrics")
        found: dict[str, float] = {}
        for line in body.decode().splitlines():
            name, _, value = line.rpartition(" ")
            name, _, labels = name.partition("{")
            if name in ("ox_connections", "ox_slow_clients_total") or 'model="writer"' in labels:
                found[name] = found.get(name, 0.0) + float(value)
        return found

    async def rest(self) -> list[str]:
        """Waits until nobody is there; what is still not as it was without clients."""
        end = perf_counter() + REST_S
        while wrong := self._left(await self.metrics()):
            if perf_counter() > end:
                return wrong
            await asyncio.sleep(0.3)
        return []

    def _left(self, now: dict[str, float]) -> list[str]:
        """All blocks of slots are returned, and every text that began has ended."""
        wrong = [f"{name} {now[name]:g}" for name in ("ox_texts_running", "ox_texts_waiting") if now[name]]
        if now["ox_cache_blocks_used"] != now["ox_cache_blocks_kept"]:
            wrong.append(f"{now['ox_cache_blocks_used'] - now['ox_cache_blocks_kept']:g} blocks are in slots")
        if now["ox_cache_blocks_used"] > now["ox_cache_blocks"]:
            wrong.append(f"{now['ox_cache_blocks_used']:g} of {now['ox_cache_blocks']:g} blocks")
        if now["ox_text_requests_total"] != now["ox_texts_total"]:
            wrong.append(f"{now['ox_texts_total']:g} of {now['ox_text_requests_total']:g} texts have ended")
        if now["ox_connections"] > 1:  # that of this request
            wrong.append(f"{now['ox_connections']:g} connections")
        return wrong


class Neighbour:
    """Asks another model of the server all the time, and is harmed by nobody."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.asked, self.slowest = 0, 0.0
        self.wrong: list[str] = []
        self.stop = False

    async def run(self) -> None:
        """Until `stop`."""
        row = [1, 2, 3, 4, 5, 6, 7, 8]
        entry = {"name": "x", "shape": [1, 8], "datatype": "FP32", "data": row}
        wanted = (STABLE.T @ row).tolist()
        while not self.stop:
            begun = perf_counter()
            try:
                status, body = await call(self._port, "POST", "/v2/models/stable/infer", {"inputs": [entry]})
                if status != 200 or json.loads(body)["outputs"][0]["data"] != wanted:
                    self.wrong.append(f"the neighbour got {status} {body[:200]!r}")
            except (OSError, TimeoutError, IndexError) as error:
                self.wrong.append(f"the neighbour got {type(error).__name__} {error}")
            self.asked += 1
            self.slowest = max(self.slowest, perf_counter() - begun)
            await asyncio.sleep(0.05)


async def texts_part(
    folder: Path, seconds: float, report: Callable[[str], None], decoder: Path | None, count: int
) -> None:
    """Every stream that is read to its end ends right, with the same text as alone; then everything is as before.

    Args:
        decoder: the folder of one; None: a small one is made.
        count: of clients.

    Raises:
        Failed: something is not so.
    """
    world = await asyncio.to_thread(put_decoder, folder / "texts", decoder)
    options = {"deadline_ms": 1e6, "max_queue": 4096, "generation": {"cache_mib": CACHE_MIB[decoder is not None]}}
    log = folder / "texts.log"
    server = Server(world.folder, stderr=log.open("w"), limits={"write_s": WRITE_S}, options=options)
    try:
        problems = await _run(server, seconds, report, count)
        code, took = await asyncio.to_thread(server.stop)
    finally:
        server.kill()
    report(f"stopped with {code} in {took:.1f} s")
    logged = [line for line in log.read_text().splitlines() if "Traceback" in line or "failed" in line]
    problems += [f"the log: {line[:200]}" for line in logged[:3]]
    problems += [f"exit code {code}"] if code else []
    if problems:
        raise Failed("; ".join(problems[:12]))


async def _run(server: Server, seconds: float, report: Callable[[str], None], count: int) -> list[str]:
    _, body = await call(server.port, "GET", "/v1/models")
    (context,) = (entry["max_model_len"] for entry in json.loads(body)["data"] if entry["id"] == "writer")
    cases, texts = TextCases("writer", context), Texts(server)
    problems = await cases.ask_alone(server.port)

    async def crowd(stop: float) -> TextBook:
        book = TextBook(stop)
        clients: list[Any] = [TextGrpcClient(server.port, n, cases, book) for n in range(count // GRPC_SHARE)]
        clients += [TextClient(server.port, n, cases, book, WRITE_S) for n in range(count - len(clients))]
        await asyncio.gather(*(client.run() for client in clients))
        return book

    warm = await crowd(perf_counter() + seconds / 6)
    problems += warm.problems() + await texts.rest()
    files, threads, memory = server.open_files(), server.threads(), list[float]()
    before = await texts.metrics()
    neighbour = Neighbour(server.port)
    asking = asyncio.create_task(neighbour.run())
    begun = perf_counter()
    running = asyncio.create_task(crowd(begun + seconds * 5 / 6))
    while not running.done():
        await asyncio.wait([running], timeout=0.5)
        if not server.running():
            raise Failed("the server ended")
        memory.append(server.memory_mb())
        if len(memory) % 40 == 0:
            now = await texts.metrics()
            states = ", ".join(f"{now[f'ox_texts_{name}']:.0f} {name}" for name in ("running", "waiting"))
            report(f"{perf_counter() - begun:4.0f} s, {memory[-1]:.0f} MB, {states}")
    book = await running
    neighbour.stop = True
    await asking
    took = perf_counter() - begun
    problems += book.problems() + neighbour.wrong[:3] + await texts.rest()
    now = await texts.metrics()
    problems += await cases.ask_alone(server.port) + await texts.rest()
    third = len(memory) // 3
    early, late = statistics.median(memory[:third]), statistics.median(memory[-third:])
    bound = early * GROWTH[0] + GROWTH[1]
    if late > bound:
        problems.append(f"memory grew from {early:.0f} to {late:.0f} MB")
    if server.open_files() > files:
        problems.append(f"{server.open_files()} open files, {files} before")
    if server.threads() > threads + EXECUTOR_THREADS:
        problems.append(f"{server.threads()} threads, {threads} before")
    made = now["ox_generated_tokens_total"] - before["ox_generated_tokens_total"]
    preempted = now["ox_preemptions_total"] - before["ox_preemptions_total"]
    for line in (
        book.line(),
        f"{count} clients, {book.sent.total():,} requests, {made / took:,.0f} tokens/s, {preempted:,.0f} preemptions, "
        f"{now['ox_slow_clients_total'] - before['ox_slow_clients_total']:.0f} ended for slowness",
        f"memory {early:.0f} MB, {late:.0f} at the end (allowed {bound:.0f}); open files {files}, then "
        f"{server.open_files()}; threads {threads}, then {server.threads()}",
        f"another model: {neighbour.asked:,} answers, the slowest after {1000 * neighbour.slowest:.0f} ms",
    ):
        report(line)
    return problems
