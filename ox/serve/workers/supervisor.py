"""Starts worker processes, restarts those that die, broadcasts calls to all of them, and stops them together."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

from ox.errors import OxError, ServeError
from ox.serve.protocol.v2.logs import LogSettings
from ox.serve.telemetry.logged_output import WARNING
from ox.serve.telemetry.merge import merge
from ox.serve.telemetry.snapshot import Snapshot
from ox.serve.transport.sockets import bind
from ox.serve.transport.unix_socket import UnixSocket
from ox.serve.workers.control_channel import LONGEST, ControlChannel
from ox.serve.workers.heartbeat import EVERY, Heartbeat, state_of
from ox.serve.workers.lost_counts import counters, with_lost
from ox.serve.workers.readiness import Readiness
from ox.serve.workers.replay_log import ReplayLog
from ox.serve.workers.shared_folder import SharedFolder
from ox.serve.workers.shared_number import SharedNumber
from ox.serve.workers.subprocess_environment import subprocess_environment
from ox.serve.workers.worker_config import WorkerConfig

RESPONSE_TIMEOUT_S = 2.0  # for one worker's response; a metrics scraper waits ten seconds at most
EXIT_TIMEOUT_S = 10.0  # for a worker to exit after it has drained
HEARTBEATS_PER_SNAPSHOT = 10  # how often the supervisor stores a worker's counts
MAX_RESTART_DELAY_S = 5.0  # between two starts of a worker that keeps dying


class Worker:
    """A worker process and its control channel."""

    def __init__(self, number: int, process: asyncio.subprocess.Process, channel: ControlChannel) -> None:
        self.number, self.process, self.channel = number, process, channel
        self.ready = False
        self.may_serve = False  # it listens: clients may wait for it
        self.tasks: list[asyncio.Task[None]] = []  # what reads its channel, and its heartbeat
        self.figures: Snapshot | None = None  # as last seen

    async def update_figures(self) -> Worker:
        """Requests the worker's snapshot. Raises OxError as `ControlChannel.ask` does."""
        self.figures = await self.channel.ask("figures", None, RESPONSE_TIMEOUT_S)
        return self

    def on_disconnect(self) -> None:
        """The control channel has closed."""
        self.ready = False
        for task in self.tasks:
            task.cancel()


class Supervisor:
    """Keeps `config.settings["workers"]` workers alive.

    Args:
        config: what each worker serves, and the number of workers. The supervisor binds the shared ports.
        show: shows a line to the user.
    """

    def __init__(self, config: WorkerConfig, show: Callable[[str], None]) -> None:
        settings = config.settings
        self._show, self._count, self._logs = show, settings.workers, LogSettings()
        self._port_sockets: list[socket.socket] = []
        port, grpc_port = settings.port, settings.grpc_port
        if port is not None:
            self._port_sockets = _reserve_port(settings.host, port)
            port = self._port_sockets[0].getsockname()[1]
        if grpc_port is not None:
            reserved = _reserve_port(settings.host, grpc_port)
            grpc_port = reserved[0].getsockname()[1]
            self._port_sockets += reserved
        self._unix = None if settings.uds is None else UnixSocket(str(settings.uds))
        self._config = config.at(port, grpc_port)
        self._folder = SharedFolder()
        self._replay_log = ReplayLog()
        self._readiness = Readiness(self._count)
        self._ready_everywhere = self._readiness.common()  # as published
        self._number, self._published = 0, SharedNumber()
        self._publishing: asyncio.Task[None] | None = None
        self._lost: list[Snapshot] = []  # at most one: what all workers had counted that have ended
        self._workers: dict[int, Worker] = {}
        self._restart_tasks: list[asyncio.Task[None]] = []
        self._spawning: set[asyncio.Task[Worker]] = set()
        self._spawn_lock = asyncio.Lock()  # one process at a time: the start of many can be stopped between two
        self._stopping = False
        self._greeting: list[str] = []
        self._answers = 0
        self._change_lock = asyncio.Lock()  # all workers run the calls that change state in the same order

    async def model_lines(self) -> list[str]:
        """A line for each model that is ready in all workers."""
        links = [self._workers[number].channel for number in range(self._count)]
        try:  # the first worker's lines, as in the greeting: what each has measured differs
            first, *rest = await asyncio.gather(
                *(channel.ask("model_lines", None, RESPONSE_TIMEOUT_S) for channel in links)
            )
        except OxError:  # they are busy, or end: the waiter for the loads gets the error
            return []
        others = [{_model(line) for line in lines} for lines in rest]
        return [line for line in first if all(_model(line) in models for models in others)]

    def greeting(self) -> list[str]:
        return self._greeting

    @property
    def answers(self) -> int:
        """Number of responses of all workers; set after `stop`."""
        return self._answers

    async def start(self) -> None:
        """Starts all workers; they listen and load the models.

        Raises:
            OxError: a worker cannot serve.
        """
        started = [asyncio.ensure_future(self._begin(number, wait=False)) for number in range(self._count)]
        try:
            await asyncio.wait(started, return_when=asyncio.FIRST_EXCEPTION)
        finally:  # also if stop is called meanwhile
            for task in started:
                task.cancel()  # nothing to those that are done
            ends = await asyncio.gather(*started, return_exceptions=True)
        failed = next((end for end in ends if isinstance(end, Exception)), None)
        if failed is not None:
            await self.stop()
            raise failed

    async def loaded(self) -> None:
        """Waits until each worker has loaded its initial models or has failed to.

        Raises:
            OxError: a worker cannot serve.
        """
        workers = [self._workers[number] for number in range(self._count)]
        lines = (await asyncio.gather(*(worker.channel.ask("loaded") for worker in workers)))[0]
        await asyncio.wait((self._publish(),))
        self._restart_tasks = [asyncio.ensure_future(self._restart_loop(number)) for number in range(self._count)]
        self._greeting = [*lines[:-1], f"{self._count} workers · {lines[-1]}"]

    @property
    def address(self) -> str:
        """Host and port, or the path of a Unix domain socket."""
        settings = self._config.settings
        if settings.port is None:
            return str(settings.uds)
        return f"{f'[{settings.host}]' if ':' in settings.host else settings.host}:{settings.port}"

    async def stop(self) -> None:
        """Drains all workers."""
        self._stopping = True
        for task in self._restart_tasks:
            task.cancel()
        # a process that is being made is stopped like the others, and not left behind
        await asyncio.gather(*self._spawning, return_exceptions=True)
        if self._unix is not None:
            self._unix.remove()
            self._unix.socket.close()
        answers = await asyncio.gather(*(self._end(worker) for worker in list(self._workers.values())))
        for reserved in self._port_sockets:
            reserved.close()
        self._folder.close()
        if self._publishing is not None:
            await self._publishing  # it waits for no worker any more
        self._published.close()
        self._answers = sum(answers)

    async def _end(self, worker: Worker) -> int:
        answers = 0
        if worker.may_serve:  # else there is nothing to drain, and no need to wait for its imports
            with suppress(OxError, TimeoutError):
                answers = await worker.channel.ask("stop", seconds=self._config.limits.drain_s)
                await asyncio.wait_for(worker.process.wait(), self._config.limits.drain_s + EXIT_TIMEOUT_S)
        if worker.process.returncode is None:
            worker.process.kill()
        await worker.process.wait()
        worker.channel.close()
        if worker.tasks:  # which the event loop must not be closed before
            await asyncio.wait(worker.tasks)
        return answers or 0

    async def _begin(self, number: int, wait: bool) -> None:
        """Starts a worker, which listens at once or, with `wait`, after its models are loaded."""
        async with self._spawn_lock:
            spawning = asyncio.ensure_future(self._spawn(number))
            self._spawning.add(spawning)
            spawning.add_done_callback(self._spawning.discard)
            worker = await asyncio.shield(spawning)  # the process is created even if the caller is cancelled
        channel = worker.channel
        responses = "" if self._folder.path is None else str(self._folder.path / "responses")
        await channel.ask("begin", {"config": self._config.to_json(), "wait": wait, "responses": responses})
        async with self._change_lock:  # no call that changes state may come between the replay log and `ready`
            worker.may_serve = True
            await channel.ask("listen", {"replay": self._replay_log.calls()})
            worker.ready = True

    async def _spawn(self, number: int) -> Worker:
        supervisor_socket, worker_socket = socket.socketpair()
        with worker_socket:
            environment = {**subprocess_environment(), "OX_LOCAL_PROCESSES": str(self._count)}
            files = [worker_socket.fileno(), self._published.descriptor]
            files += [] if self._unix is None else [self._unix.socket.fileno()]
            settings = self._config.settings
            log = [settings.log or "none", settings.log_level]
            command = [sys.executable, "-P", "-m", "ox.serve.workers.worker", *log, *map(str, files)]
            process = await asyncio.create_subprocess_exec(*command, pass_fds=files, env=environment)
        reader, writer = await asyncio.open_unix_connection(sock=supervisor_socket, limit=LONGEST)
        channel = ControlChannel(reader, writer, partial(self._answer, number))
        before = self._workers.get(number)
        if before is not None and before.figures is not None:
            self._lost = [merge([*self._lost, counters(before.figures)])]
        worker = self._workers[number] = Worker(number, process, channel)
        reading = asyncio.ensure_future(channel.run())
        reading.add_done_callback(lambda _: self._on_disconnect(worker))
        worker.tasks = [reading, asyncio.ensure_future(self._monitor(worker))]
        return worker

    def _on_disconnect(self, worker: Worker) -> None:
        worker.on_disconnect()
        if self._workers[worker.number] is worker:
            self._readiness.remove(worker.number)
            self._publish()

    def _publish(self) -> asyncio.Task[None]:
        """Publishes what is ready in each worker, if that has changed."""
        if self._publishing is None or self._publishing.done():
            self._publishing = asyncio.ensure_future(self._publish_changes())
        return self._publishing

    async def _publish_changes(self) -> None:
        """All workers learn of a state before its number is published, and then it counts in all of them at once: a
        client that one of them has told of it hears the same from the others."""
        while not self._stopping and (common := self._readiness.common()) != self._ready_everywhere:
            number, told = self._number + 1, set[Worker]()
            while new := {worker for worker in self._workers.values() if worker.may_serve} - told:
                asked = (worker.channel.ask("ready_everywhere", {"number": number, **common}) for worker in new)
                await asyncio.gather(*asked, return_exceptions=True)  # one that has ended needs to know nothing
                told |= new
            self._ready_everywhere, self._number = common, number
            self._published.value = number
            for worker in told:
                worker.channel.tell("published", {})

    async def _monitor(self, worker: Worker) -> None:
        """Kills a worker whose event loop hangs; the kernel would still send clients to it."""
        heartbeat = Heartbeat(partial(state_of, worker.process.pid))
        for turn in count():
            asked = asyncio.ensure_future(worker.channel.ask("pulse"))
            try:
                while not (await asyncio.wait((asked,), timeout=EVERY))[0]:
                    if (why := heartbeat.missed()) is not None:
                        self._show(f"{WARNING}worker {worker.number} {why} · killing it")
                        worker.process.kill()
                        return
                if asked.exception() is not None:  # it has ended
                    return
                heartbeat.answered()
                if worker.ready and turn % HEARTBEATS_PER_SNAPSHOT == 0:  # the counts that remain if the worker dies
                    with suppress(OxError):
                        await worker.update_figures()
                await asyncio.sleep(EVERY)
            finally:
                asked.cancel()

    async def _restart_loop(self, number: int) -> None:
        """Restarts the worker when it ends, with exponential backoff while it keeps dying."""
        pause = 0.1
        while not self._stopping:
            worker = self._workers[number]
            started = asyncio.get_running_loop().time()
            code = await worker.process.wait()
            if self._stopping:
                return
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            self._show(f"{WARNING}worker {number} {how} · restarting it")
            lived_s = asyncio.get_running_loop().time() - started
            pause = 0.1 if lived_s > MAX_RESTART_DELAY_S else min(2 * pause, MAX_RESTART_DELAY_S)
            await asyncio.sleep(pause)
            try:
                await self._begin(number, wait=True)
            except (OxError, OSError) as error:
                why = error.one_line() if isinstance(error, OxError) else str(error)
                self._show(f"{WARNING}worker {number} failed to start: {why}")
                process = self._workers[number].process
                if process.returncode is None:
                    process.kill()

    async def _answer(self, number: int, call: str, arguments: dict[str, Any]) -> Any:
        """Handles a call from a worker: a log line, its state, the merged figures, or a broadcast to all workers."""
        if call == "show":
            self._show(f"worker {number}: {arguments['line']}")
            return None
        if call == "state":
            self._readiness.update(number, arguments)
            await asyncio.wait((self._publish(),))  # a new worker is as ready as the rest
            return {"number": self._number, **self._ready_everywhere}
        if call == "figures":
            return await self._figures()
        assert call == "broadcast", call
        name, parameters = arguments["call"], arguments["with"]
        if not arguments["changes"]:
            return await self._ask_all(name, parameters, RESPONSE_TIMEOUT_S)
        if name == "unload":  # a load call that it ends holds the lock
            await self._ask_all("cancel", {"name": parameters["name"]}, RESPONSE_TIMEOUT_S)
        async with self._change_lock:
            answers = await self._ask_all(name, parameters, None)
            if name in ("load", "unload"):  # a client that asks another worker now sees the change
                await asyncio.wait((self._publish(),), timeout=RESPONSE_TIMEOUT_S)
            if name == "log_settings":  # also of the lines that the supervisor shows
                self._logs.update(parameters["settings"])
            self._replay_log.note(name, parameters)
            return answers

    async def _ask_all(self, call: str, arguments: dict[str, Any], seconds: float | None) -> list[Any]:
        """Calls all ready workers and returns their responses. Raises the first error among them."""
        ready = [worker for worker in self._workers.values() if worker.ready]
        return await _responses(worker.channel.ask(call, arguments, seconds) for worker in ready)

    async def _figures(self) -> Snapshot:
        """The merged snapshot of all workers; for those that ended or do not respond, their last counters."""
        answered = set(await _responses(worker.update_figures() for worker in self._workers.values() if worker.ready))
        living, lost = [], [*self._lost]
        for worker in self._workers.values():  # those of now: one may have been replaced meanwhile
            if worker.figures is not None:
                living += [worker.figures] if worker in answered else []
                lost += [] if worker in answered else [counters(worker.figures)]
        if not living:
            raise _no_response()
        return with_lost(living, lost)


def _no_response() -> ServeError:
    return ServeError("no worker responds", status=503, hint="again in a moment")


async def _responses(pending: Iterable[Awaitable[Any]]) -> list[Any]:
    """The responses of workers; those that have ended or time out are left out.

    Raises:
        OxError: the first error among the responses, or no worker responds (503).
    """
    answers = await asyncio.gather(*pending, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not (isinstance(answer, ServeError) and answer.status == 503):
            raise answer
    received = [answer for answer in answers if not isinstance(answer, BaseException)]
    if not received:
        raise _no_response()
    return received


def _reserve_port(host: str, port: int) -> list[socket.socket]:
    """Sockets that reserve a port for the workers and do not listen."""
    for alone in bind(host, port):  # without sharing: a port in use is an error
        alone.close()
    return bind(host, port, share=True)


def _model(line: str) -> str:
    """Name and version, from a line of `Model.describe`."""
    return line.split(" · ")[0]
