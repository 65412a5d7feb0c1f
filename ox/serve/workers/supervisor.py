"""Starts workers, starts them again when they die, passes on what concerns all of them, and stops them together."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import count
from time import monotonic
from typing import Any

from ox.errors import OxError, ServeError
from ox.serve.sockets import bind
from ox.serve.subprocess_environment import subprocess_environment
from ox.serve.telemetry.merge import merge
from ox.serve.telemetry.snapshot import Snapshot
from ox.serve.unix_socket import UnixSocket
from ox.serve.workers.heartbeat import EVERY, Heartbeat, state_of
from ox.serve.workers.journal import Journal
from ox.serve.workers.link import LONGEST, Link
from ox.serve.workers.lost_counts import counters, with_lost
from ox.serve.workers.orders import Orders

PATIENCE = 2.0  # seconds that a worker has for an answer about itself; who scrapes metrics waits no longer than ten
GRACE = 10.0  # seconds that a worker has to end after it drained
LOOKS = 10  # heartbeats between two looks at what a worker has counted
SLOWEST = 5.0  # seconds between two starts of a worker that keeps dying


class Worker:
    """One process and the link to it."""

    def __init__(self, number: int, process: asyncio.subprocess.Process, link: Link) -> None:
        self.number, self.process, self.link = number, process, link
        self.ready = False
        self.may_serve = False  # it has been told to listen: clients may wait for it
        self.pulse: asyncio.Task[None] | None = None
        self.figures: Snapshot | None = None  # as last seen

    async def look(self) -> Worker:
        """Asks for its figures. Raises OxError as `Link.ask` does."""
        self.figures = await self.link.ask("figures", None, PATIENCE)
        return self

    def gone(self) -> None:
        """Its link has ended."""
        self.ready = False
        if self.pulse is not None:
            self.pulse.cancel()


class Supervisor:
    """Keeps `orders.settings["workers"]` workers alive.

    Args:
        orders: what each worker serves, and how many there are; the ports are taken here, so that all share them.
        show: shows a line to the user.
    """

    def __init__(self, orders: Orders, show: Callable[[str], None]) -> None:
        settings = orders.settings
        self._show, self._count = show, settings.workers
        self._held: list[socket.socket] = []
        port, grpc_port = settings.port, settings.grpc_port
        if port is not None:
            self._held = _hold(settings.host, port)
            port = self._held[0].getsockname()[1]
        if grpc_port is not None:
            held = _hold(settings.host, grpc_port)
            grpc_port = held[0].getsockname()[1]
            self._held += held
        self._unix = None if settings.uds is None else UnixSocket(str(settings.uds))
        self._orders = orders.at(port, grpc_port)
        self._journal = Journal()
        self._lost: list[Snapshot] = []  # at most one: what all workers had counted that have ended
        self._workers: dict[int, Worker] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._spawning: set[asyncio.Task[Worker]] = set()
        self._stopping = False
        self._greeting: list[str] = []
        self._answers = 0
        self._news = asyncio.Lock()  # calls that change something happen in one order everywhere

    async def model_lines(self) -> list[str]:
        """A line for each model that answers in all workers now."""
        links = [self._workers[number].link for number in range(self._count)]
        try:  # the first worker's lines, as in the greeting: what each has measured differs
            first, *rest = await asyncio.gather(*(link.ask("model_lines", None, PATIENCE) for link in links))
        except OxError:  # they are busy, or end: whoever waits for the loads gets to hear it
            return []
        others = [{_model(line) for line in lines} for lines in rest]
        return [line for line in first if all(_model(line) in models for models in others)]

    def greeting(self) -> list[str]:
        return self._greeting

    @property
    def answers(self) -> int:
        """Answers of all workers, known once they have stopped."""
        return self._answers

    async def start(self) -> None:
        """Starts all workers; they listen, and load what lies there.

        Raises:
            OxError: what hinders a worker from serving.
        """
        started = [asyncio.ensure_future(self._begin(number, wait=False)) for number in range(self._count)]
        try:
            await asyncio.wait(started, return_when=asyncio.FIRST_EXCEPTION)
        finally:  # also where somebody says stop meanwhile
            for task in started:
                task.cancel()  # nothing to those that are done
            ends = await asyncio.gather(*started, return_exceptions=True)
        failed = next((end for end in ends if isinstance(end, Exception)), None)
        if failed is not None:
            await self.stop()
            raise failed

    async def loaded(self) -> None:
        """Waits until all workers have loaded what was there at the start, or could not.

        Raises:
            OxError: what hinders a worker from serving.
        """
        workers = [self._workers[number] for number in range(self._count)]
        lines = (await asyncio.gather(*(worker.link.ask("loaded") for worker in workers)))[0]
        self._keepers = [asyncio.ensure_future(self._keep(number)) for number in range(self._count)]
        self._greeting = [*lines[:-1], f"{self._count} workers · {lines[-1]}"]

    @property
    def address(self) -> str:
        """Host and port, or the path of a Unix domain socket."""
        settings = self._orders.settings
        if settings.port is None:
            return str(settings.uds)
        return f"{f'[{settings.host}]' if ':' in settings.host else settings.host}:{settings.port}"

    async def stop(self) -> None:
        """Drains all workers."""
        self._stopping = True
        for task in self._keepers:
            task.cancel()
        # a process that is being made is stopped like the others, and not left behind
        await asyncio.gather(*self._spawning, return_exceptions=True)
        if self._unix is not None:
            self._unix.remove()
            self._unix.socket.close()
        answers = await asyncio.gather(*(self._end(worker) for worker in list(self._workers.values())))
        for held in self._held:
            held.close()
        self._answers = sum(answers)

    async def _end(self, worker: Worker) -> int:
        answers = 0
        if worker.may_serve:  # else there is nothing to drain, and no need to wait for its imports
            with suppress(OxError, TimeoutError):
                answers = await worker.link.ask("stop", seconds=self._orders.limits.drain_s)
                await asyncio.wait_for(worker.process.wait(), self._orders.limits.drain_s + GRACE)
        if worker.process.returncode is None:
            worker.process.kill()
        await worker.process.wait()
        if worker.pulse is not None:
            worker.pulse.cancel()
            await asyncio.wait([worker.pulse])
        return answers or 0

    async def _begin(self, number: int, wait: bool) -> None:
        """Starts a worker, which listens before its models are loaded, or waits for them."""
        spawning = asyncio.ensure_future(self._spawn(number))
        self._spawning.add(spawning)
        spawning.add_done_callback(self._spawning.discard)
        worker = await asyncio.shield(spawning)  # the system makes the process, whoever still wants it
        link = worker.link
        await link.ask("begin", {"orders": self._orders.to_json(), "wait": wait})
        async with self._news:  # what all are told meanwhile, this one would miss
            worker.may_serve = True
            await link.ask("listen", {"journal": self._journal.calls()})
            worker.ready = True

    async def _spawn(self, number: int) -> Worker:
        ours, theirs = socket.socketpair()
        with theirs:
            environment = {**subprocess_environment(), "OX_LOCAL_PROCESSES": str(self._count)}
            shared = [theirs, *([] if self._unix is None else [self._unix.socket])]
            files = [each.fileno() for each in shared]
            command = [sys.executable, "-P", "-m", "ox.serve.workers.worker", *map(str, files)]
            process = await asyncio.create_subprocess_exec(*command, pass_fds=files, env=environment)
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=LONGEST)
        link = Link(reader, writer, partial(self._answer, number))
        before = self._workers.get(number)
        if before is not None and before.figures is not None:
            self._lost = [merge([*self._lost, counters(before.figures)])]
        worker = self._workers[number] = Worker(number, process, link)
        reading = asyncio.ensure_future(link.run())
        reading.add_done_callback(lambda _: worker.gone())
        worker.pulse = asyncio.ensure_future(self._feel(worker))
        return worker

    async def _feel(self, worker: Worker) -> None:
        """Ends a worker whose event loop stands still: clients would go on falling to it."""
        heartbeat = Heartbeat(partial(state_of, worker.process.pid))
        for turn in count():
            asked = asyncio.ensure_future(worker.link.ask("pulse"))
            try:
                while not (await asyncio.wait((asked,), timeout=EVERY))[0]:
                    if (why := heartbeat.missed()) is not None:
                        self._show(f"worker {worker.number} {why} · ending it")
                        worker.process.kill()
                        return
                if asked.exception() is not None:  # it has ended
                    return
                heartbeat.answered()
                if worker.ready and turn % LOOKS == 0:  # should it die, so much of its counts is known
                    with suppress(OxError):
                        await worker.look()
                await asyncio.sleep(EVERY)
            finally:
                asked.cancel()

    async def _keep(self, number: int) -> None:
        """Starts the worker again whenever it ends; slower and slower while it does not last."""
        pause = 0.1
        while not self._stopping:
            worker = self._workers[number]
            begun = monotonic()
            code = await worker.process.wait()
            if self._stopping:
                return
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            self._show(f"worker {number} {how} · starting it again")
            pause = 0.1 if monotonic() - begun > SLOWEST else min(2 * pause, SLOWEST)
            await asyncio.sleep(pause)
            try:
                await self._begin(number, wait=True)
            except (OxError, OSError) as error:
                why = error.one_line() if isinstance(error, OxError) else str(error)
                self._show(f"worker {number} does not start: {why}")
                process = self._workers[number].process
                if process.returncode is None:
                    process.kill()

    async def _answer(self, number: int, call: str, arguments: dict[str, Any]) -> Any:
        """What a worker asks of all: its own name for the call, and whether that changes something."""
        if call == "show":
            self._show(f"worker {number}: {arguments['line']}")
            return None
        if call == "figures":
            return await self._figures()
        assert call == "everywhere", call
        name, its = arguments["call"], arguments["with"]
        if not arguments["changes"]:
            return await self._ask_all(name, its, PATIENCE)
        if name == "unload":  # a load call that it ends holds the lock
            await self._ask_all("cancel", {"name": its["name"]}, PATIENCE)
        async with self._news:
            answers = await self._ask_all(name, its, None)
            self._journal.note(name, its)
            return answers

    async def _ask_all(self, call: str, arguments: dict[str, Any], seconds: float | None) -> list[Any]:
        """The answers of all workers that are ready. Raises the first error that one of them answers."""
        ready = [worker for worker in self._workers.values() if worker.ready]
        return await _told(worker.link.ask(call, arguments, seconds) for worker in ready)

    async def _figures(self) -> Snapshot:
        """Of all workers as one. Of those that do not answer, and those before them, what was seen last is counted."""
        answered = set(await _told(worker.look() for worker in self._workers.values() if worker.ready))
        living, lost = [], [*self._lost]
        for worker in self._workers.values():  # those of now: one may have been replaced meanwhile
            if worker.figures is not None:
                living += [worker.figures] if worker in answered else []
                lost += [] if worker in answered else [counters(worker.figures)]
        if not living:
            raise _silence()
        return with_lost(living, lost)


def _silence() -> ServeError:
    return ServeError("no worker answers", status=503, hint="again in a moment")


async def _told(asked: Iterable[Awaitable[Any]]) -> list[Any]:
    """The answers of workers; those that have ended or do not answer in time have none.

    Raises:
        OxError: the first error that one of them answers, or there is no answer at all (503).
    """
    answers = await asyncio.gather(*asked, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not (isinstance(answer, ServeError) and answer.status == 503):
            raise answer
    told = [answer for answer in answers if not isinstance(answer, BaseException)]
    if not told:
        raise _silence()
    return told


def _hold(host: str, port: int) -> list[socket.socket]:
    """Sockets that keep a port for the workers, and listen to nothing themselves."""
    for alone in bind(host, port):  # without sharing: somebody else's port is an error
        alone.close()
    return bind(host, port, share=True)


def _model(line: str) -> str:
    """Name and version, of a line that `Model.describe` has made."""
    return line.split(" · ")[0]
