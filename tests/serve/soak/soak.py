"""Everything at once, for minutes: `make soak`.

    python tests/serve/soak/soak.py [--minutes 10] [--only main,large,texts,streams,drain,kill,disk,clock]
    python tests/serve/soak/soak.py --minutes 1 --only texts [--decoder FOLDER] [--text-clients 200]

256 clients over HTTP (JSON and binary) and gRPC ask without a rest, while models get new versions, are replaced,
removed, added and damaged on disk, bad requests are mixed in, 5,000 connections idle and 32 clients stop in the middle
of a body. Then, each under the same load: answers of 24 MB, with clients that read them and clients that hardly do;
SIGTERM; a worker that is killed; a disk that is full; a clock that jumps. At
the end every request must have got a right answer or the right error, and memory must not have grown.

Two parts have a decoder: `texts`, whose clients read, stop reading, cancel, send nonsense and return, and `streams`,
10,000 open streams.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from time import perf_counter
from typing import Any

from cases import cases
from crowd import Book, Crowd, Failed
from large import Readers, put
from open_streams import streams_part
from others import IDLE, Idlers, call, halves, manager
from server import Server
from texts import texts_part
from world import World

from ox.bench.address import Address

CLIENTS = {False: 160, True: 96}  # HTTP, gRPC: 256 together
GROWTH = 1.10, 24.0  # memory at the end: at most this factor, and so many MB, above what it was once warm
# MB: all answers together (`RequestLimits.unread`), and what ONNX Runtime's arena keeps of runs whose outputs took up
# to half as much: three pieces of 64 MiB with two rows of 24 MB each.
LARGE_PEAK = 268.0 + 3 * 67.1
LARGE_RETURN = 1.2
RETURN_S = 45.0  # an arena that is used again and again is shrunk at least each 32 s
STREAMS_S = 20.0
SPARE_S = 6.0  # each of the short parts
FAKETIME = [Path(f"/usr/lib/{kind}-linux-gnu/faketime/libfaketime.so.1") for kind in ("x86_64", "aarch64")]


async def load(server: Server, world: World, seconds: float, meanwhile: Any, spared: bool = False) -> Book:
    """All clients for so long, and beside them `meanwhile(book)`."""
    book = Book(perf_counter() + seconds)
    crowds = []
    for grpc, count in CLIENTS.items():
        address = Address("127.0.0.1", server.port, grpc, False)
        crowds.append(Crowd(address, cases(address, world), book, count))
    for crowd in crowds:
        await crowd.open()
    beside = asyncio.create_task(meanwhile(book))
    await asyncio.gather(*(crowd.run() for crowd in crowds))
    try:
        await beside
    finally:
        for crowd in crowds:
            await crowd.close()
    return book


async def main_part(folder: Path, minutes: float, report: Callable[[str], None]) -> Book:
    seconds = 60 * minutes
    world = World(folder / "main")
    server = Server(world.folder, stderr=(folder / "main.log").open("w"))
    warm = min(60.0, seconds / 3)  # what memory is compared with
    memory: list[tuple[float, float]] = []
    begun = perf_counter()
    waiting: Counter[str] = Counter()
    managed: Counter[str] = Counter()
    longest: dict[str, float] = {}
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    idle = min(IDLE, files - 2 * sum(CLIENTS.values()))
    idlers = Idlers(server.port, idle)
    if idle < IDLE:
        report(f"only {idle:,} idle connections: this process may open {files:,} files")

    async def meanwhile(book: Book) -> None:
        tasks = [
            asyncio.create_task(task)
            for task in (
                world.trouble(),
                idlers.run(),
                halves(server.port, waiting),
                manager(server.port, managed, longest),
            )
        ]
        shown = begun
        while perf_counter() < book.stop:
            await asyncio.sleep(0.5)
            if not server.running():
                raise Failed(f"the server ended: {(folder / 'main.log').read_text()[-2000:]}")
            for task in tasks:
                if task.done():
                    await task
            now = perf_counter()
            memory.append((now - begun, server.memory_mb()))
            if now - shown > 30:
                shown = now
                report(f"{now - begun:4.0f} s, {memory[-1][1]:.0f} MB, {len(idlers.open):,} idle, {book.lines()}")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        idlers.leave()

    try:
        book = await load(server, world, seconds, meanwhile)
        status, _ = await call(server.port, "GET", "/v2/health/live")
        code, took = server.stop()
    finally:
        server.kill()
    before = statistics.median(mb for when, mb in memory if warm * 0.8 <= when <= warm * 1.2)
    after = statistics.median(mb for when, mb in memory if when >= seconds * 0.9)
    bound = before * GROWTH[0] + GROWTH[1]
    for line in (
        f"on disk: {world.done}",
        f"half a body: {dict(waiting)}",
        f"idle: at most {idlers.most:,} at once, {idlers.closed:,} closed by the server, {idlers.refused} refused",
        f"managing: {dict(managed)}; the longest calls, s: {longest}",
        f"by case: {dict(book.answers)} {dict(book.errors)}",
        f"memory: {before:.0f} MB after {warm:.0f} s, {after:.0f} MB at the end (allowed {bound:.0f})",
        f"stopped with {code} in {took:.1f} s",
    ):
        report(line)
    wrong = [what for what in managed if what != "right"] + [what for what in waiting if "WAITED" in what]
    never = [name for name in ("grow", "flip", "guest", "stable", "picky") if not book.answers[name]]
    if wrong or never or status != 200 or code != 0:
        raise Failed(f"{wrong}, never answered: {never}, live: {status}, exit code {code}", book)
    if seconds > 45 and idlers.most < idle * 0.9:
        raise Failed(f"only {idlers.most} of {idle} idle connections", book)
    if after > bound:
        raise Failed(f"memory grew from {before:.0f} to {after:.0f} MB", book)
    return book


async def large_part(folder: Path, seconds: float, report: Callable[[str], None]) -> Book:
    """Large answers in the middle half: none is cut, memory has a bound and comes back."""
    world = World(folder / "large")
    put(world.folder)
    server = Server(world.folder, stderr=(folder / "large.log").open("w"))
    readers = Readers(server.port)
    memory: list[float] = []
    peaks: list[float] = []
    waited: list[float] = []  # until memory was back

    async def meanwhile(book: Book) -> None:
        warm = Readers(server.port)  # what runs hold for the next one is there before and afterwards
        warming = asyncio.create_task(warm.run())
        await asyncio.sleep(seconds / 16)
        warm.stop = True
        await warming
        await asyncio.sleep(seconds / 4)
        memory.append(server.memory_mb())
        reading = asyncio.create_task(readers.run())
        stop = perf_counter() + seconds / 3
        while not reading.done():
            readers.stop = perf_counter() > stop
            await asyncio.sleep(0.1)
            peaks.append(server.memory_mb())
        await reading
        ended = perf_counter()
        while server.memory_mb() > LARGE_RETURN * memory[0] and perf_counter() < ended + RETURN_S:
            await asyncio.sleep(0.5)
        memory.append(server.memory_mb())
        waited.append(perf_counter() - ended)

    try:
        book = await load(server, world, seconds, meanwhile)
        _, metrics = await call(server.port, "GET", "/metrics")
        code, took = await asyncio.to_thread(server.stop)
    finally:
        server.kill()
    (before, after), most_held = memory, max(peaks)
    most = LARGE_RETURN * before
    for line in (
        f"large answers: { ({' '.join(key): count for key, count in sorted(readers.seen.items())}) }",
        *(line for line in metrics.decode().splitlines() if line.startswith(("ox_answer_", "ox_slow_"))),
        f"memory: {before:.0f} MB, at most {most_held:.0f}, {after:.0f} {waited[0]:.1f} s later (allowed {most:.0f})",
        f"stopped with {code} in {took:.1f} s",
    ):
        report(line)
    problems = readers.problems()
    if most_held > before + LARGE_PEAK:
        problems.append(f"{most_held:.0f} MB were resident, {LARGE_PEAK:.0f} more than before are allowed")
    if after > most:
        problems.append(f"memory stayed at {after:.0f} MB")
    if code != 0 or problems:
        raise Failed(f"exit code {code}, {problems}", book)
    return book


async def drain_part(folder: Path, seconds: float, report: Callable[[str], None]) -> Book:
    """SIGTERM under load: what was sent before it is answered; what comes after may find nobody."""
    world = World(folder / "drain")
    server = Server(world.folder)

    async def meanwhile(book: Book) -> None:
        await asyncio.sleep(seconds / 2)
        book.spared = perf_counter(), float("inf")
        book.stop = perf_counter() + 1.0
        server.process.send_signal(signal.SIGTERM)

    try:
        book = await load(server, world, seconds, meanwhile)
        code = await asyncio.to_thread(server.process.wait, 20)
    finally:
        server.kill()
    report(f"exit code {code}, {server.lines[-1]}")
    if code != 0:
        raise Failed(f"exit code {code}", book)
    return book


async def kill_part(folder: Path, seconds: float, report: Callable[[str], None]) -> Book:
    """One of two workers is killed: what it held is lost, everything else goes on, and it is replaced."""
    world = World(folder / "kill")
    server = Server(world.folder, workers=2)
    after: list[int] = []

    async def meanwhile(book: Book) -> None:
        await asyncio.sleep(seconds / 3)
        before = server.children()
        victim = max(before)
        book.spared = perf_counter() - 10, perf_counter() + 0.5
        os.kill(victim, signal.SIGKILL)
        await asyncio.sleep(seconds / 2)
        after.extend(server.children())
        report(f"workers {before}, killed {victim}, then {after}")
        if victim in after or len(after) != len(before):
            raise Failed(f"worker {victim} was not replaced: {after}")

    try:
        book = await load(server, world, seconds, meanwhile)
        code, took = await asyncio.to_thread(server.stop)
    finally:
        server.kill()
    report(f"stopped with {code} in {took:.1f} s")
    if code != 0 or book.excused.total() > sum(CLIENTS.values()):
        raise Failed(f"exit code {code}, {book.excused.total()} lost with the worker", book)
    return book


async def disk_part(folder: Path, seconds: float, report: Callable[[str], None]) -> Book:
    """Logs that cannot be written, and no file that may grow."""
    world = World(folder / "disk")

    def before() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    with open("/dev/full", "w") as full:
        server = Server(world.folder, log="json", stderr=full, before=before)
    override = {"parameters": {"config": "{}", "file:1/model.onnx": "AAAA"}}

    async def meanwhile(book: Book) -> None:
        await asyncio.sleep(seconds / 3)
        status, body = await call(server.port, "POST", "/v2/repository/models/stable/load", override)
        report(f"a model that cannot be stored: {status} {body[:150]!r}")
        if status < 400 or b"Traceback" in body:
            raise Failed(f"{status} {body!r}")

    return await quiet(server, world, seconds, meanwhile, report)


async def clock_part(folder: Path, seconds: float, report: Callable[[str], None]) -> Book | None:
    """The wall clock jumps a day ahead, then back by two."""
    library = next((path for path in FAKETIME if path.exists()), None)
    if library is None:
        report("left out: libfaketime is not installed (Debian: faketime)")
        return None
    world = World(folder / "clock")
    offset = folder / "offset"
    offset.write_text("+0")
    fake = {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    server = Server(world.folder, environment=fake)

    async def meanwhile(book: Book) -> None:
        for days in (1, -1):
            await asyncio.sleep(seconds / 3)
            offset.write_text(f"{days:+}d")
            await world.grow()
            await asyncio.sleep(1.5)
            _, body = await call(server.port, "GET", "/v2/models/stable/stats")
            ahead = json.loads(body)["model_stats"][0]["last_inference"] / 1e3 - time.time()
            report(f"the server's clock is {ahead / 86_400:+.1f} days ahead")
            if abs(ahead - days * 86_400) > 60:
                raise Failed(f"the clock did not jump: {ahead} s", book)

    return await quiet(server, world, seconds, meanwhile, report)


async def quiet(server: Server, world: World, seconds: float, meanwhile: Any, report: Callable[[str], None]) -> Book:
    """A part in which nothing at all may be lost."""
    try:
        book = await load(server, world, seconds, meanwhile)
        code, took = await asyncio.to_thread(server.stop)
    finally:
        server.kill()
    report(f"stopped with {code} in {took:.1f} s")
    if code != 0:
        raise Failed(f"exit code {code}", book)
    return book


async def soak(minutes: float, only: list[str], decoder: Path | None, text_clients: int) -> bool:
    good, total = True, Book(0)
    short = {"drain": drain_part, "kill": kill_part, "disk": disk_part, "clock": clock_part}
    large = max(16.0, 9 * minutes)
    texts = max(15.0, 9 * minutes) if "main" in only else 60 * minutes
    others = {"large": large, "texts": texts, "streams": STREAMS_S, **dict.fromkeys(short, SPARE_S)}
    longest = max(60 * minutes - sum(others.get(part, 0.0) for part in only), 12.0) / 60
    with tempfile.TemporaryDirectory(prefix="ox-soak-") as name:
        for part in only:

            def report(line: str, part: str = part) -> None:
                print(f"{part:<6} {line}", flush=True)

            run: Coroutine[Any, Any, Book | None]
            if part == "texts":
                run = texts_part(Path(name), texts, report, decoder, text_clients)
            elif part == "streams":
                run = streams_part(Path(name), STREAMS_S, report, decoder)
            elif part == "main":
                run = main_part(Path(name), longest, report)
            elif part == "large":
                run = large_part(Path(name), large, report)
            else:
                run = short[part](Path(name), SPARE_S, report)
            try:
                book = await run
            except Failed as error:
                good = False
                report(f"FAILED {error.args[0]}")
                book = error.args[1] if len(error.args) > 1 else None
            if book is not None:
                for line in book.lines():
                    report(line)
                good = good and book.good
                total.merge(book)
    print(f"all    {'; '.join(total.lines())}")
    print(f"soak: {'good' if good else 'FAILED'}")
    return good


def main() -> None:
    parts = ["main", "large", "texts", "streams", "drain", "kill", "disk", "clock"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", default=",".join(parts))
    parser.add_argument("--decoder", type=Path, help="the folder of a decoder; a small one is made without it")
    parser.add_argument("--text-clients", type=int, default=200)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        import uvloop
    except ImportError:
        loop = asyncio.new_event_loop()
    else:
        loop = uvloop.new_event_loop()
    with contextlib.closing(loop):
        good = loop.run_until_complete(
            soak(options.minutes, options.only.split(","), options.decoder, options.text_clients)
        )
    sys.exit(not good)


if __name__ == "__main__":
    main()
