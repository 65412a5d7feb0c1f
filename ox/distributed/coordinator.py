"""The coordinator of `ox launch`: which nodes take part, and what happens when ranks or nodes fail.

It serves one port, at which the nodes of a job connect and the ranks of the current attempt meet
(`ox.distributed.store`). An *attempt* runs all ranks on the nodes that are there. After a failure, and when nodes come
or go, the next attempt begins when all ranks of the last one have ended. Messages to and from nodes are frames
(`ox.distributed.frames`).
"""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ox.clock import Clock
from ox.distributed import frames
from ox.distributed.signals import STOPPED
from ox.distributed.store import Store

FINAL = (0, 2, *STOPPED)  # exit codes without a restart: success, wrong usage, a signal to stop
LAST_CALL = 5.0  # seconds for which the first attempt waits for more nodes than the least number
FAILURE_TIMEOUT = 5.0  # seconds from the failure of a rank to SIGKILL of the others
HUNG_TIMEOUT = 1.5  # the same for a rank that hangs: the others end by themselves after a second
GRACE = 60.0  # seconds between the signal to stop and SIGKILL
REFUSALS = 8  # nodes that were refused, named in an error
EXIT_TIMEOUT = 10.0  # seconds in which the nodes leave at the end
OS_EXIT = "exit code 1: ended by os._exit(0), without the end of the program"


@dataclass(frozen=True)
class Job:
    """What the coordinator has to know.

    Args:
        nodes: the least and the largest number of nodes.
        restarts: how often all ranks are restarted after a failure.
        timeout: seconds to wait for enough nodes.
        heartbeat: seconds without a heartbeat after which a rank or node counts as lost; 0: never.
        same: what must be equal on all nodes, with the words for errors.
        grace: seconds between the signal to stop and SIGKILL.
    """

    nodes: tuple[int, int]
    restarts: int
    timeout: float
    heartbeat: float
    same: dict[str, str]
    grace: float = GRACE


@dataclass
class Outcome:
    """How the job ended: its exit code, and a line that no rank has printed."""

    code: int
    text: str | None = None


@dataclass
class Cause:
    """What failed first in an attempt."""

    code: int
    text: str
    is_printed: bool = False  # a rank has printed it


@dataclass(eq=False)
class Node:
    """A machine with ranks of the job."""

    hello: dict[str, Any]
    writer: asyncio.StreamWriter
    seen: float
    first: int = 0  # its first rank in this attempt
    runs: bool = False  # ranks of it may run
    leaves: bool = False  # it ends before the job

    @property
    def size(self) -> int:
        return int(self.hello["processes"])

    def __str__(self) -> str:
        last = self.first + self.size - 1
        ranks = f"rank {self.first}" if self.size == 1 else f"ranks {self.first} to {last}"
        return f"{str(self.hello['place'])[: frames.TEXT]} with {ranks}"


@dataclass
class Coordinator:
    """Serves the nodes of a job at a listening socket. `outcome` gets the result."""

    job: Job
    listener: socket.socket
    clock: Clock
    nodes: list[Node] = field(default_factory=list)
    members: list[Node] = field(default_factory=list)  # the nodes of the attempt
    attempt: int = 0
    store: Store | None = None  # of the attempt; None between two
    cause: Cause | None = None
    change: bool = False  # the attempt was stopped because nodes come or go
    stopped: int | None = None  # the signal that stopped the job
    restarts: int = 0
    refusals: dict[str, str] = field(default_factory=dict)  # who came and was refused, and why
    run: str | None = None  # the run that the ranks have created
    succeeded: int = 0  # ranks that ended well
    report: Callable[[str], None] | None = None  # called with what is said to all nodes
    outcome: Future[Outcome] = field(default_factory=Future)
    _finished: asyncio.Event = field(default_factory=asyncio.Event)
    _no_nodes: asyncio.Event = field(default_factory=asyncio.Event)  # set while no node is connected
    _timer: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        self._greeter = frames.Greeter(frames.token(), frames.SPARE)

    def start(self) -> None:
        """Serves in a thread."""
        self.thread = threading.Thread(target=lambda: self.clock.run(self._serve()), name="ox-coordinator", daemon=True)
        self.thread.start()

    def stop(self, number: int) -> None:
        """Stops the job by a signal; called from another thread."""
        self.loop.call_soon_threadsafe(self._stop_job, number, None)

    def forward(self, number: int) -> None:
        """Sends a signal to all ranks, which go on; called from another thread."""
        self.loop.call_soon_threadsafe(lambda: self._send(self.members, forward=number))

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._connection, sock=self.listener, limit=frames.FRAME)
        watch = asyncio.create_task(self._watch_nodes())
        self._membership_changed()
        await self._finished.wait()
        if self.nodes:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._no_nodes.wait(), EXIT_TIMEOUT)
        watch.cancel()
        server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            frames.keep_alive(writer.get_extra_info("socket"))
            hello, authenticated = await self._greeter.greet(reader, writer, self._finished.is_set())
            if hello.get("kind") == "node" and isinstance(hello.get("nonce"), str):
                await self._serve_node(hello, authenticated, reader, writer)
            elif self.store is not None:
                await self.store.converse(hello, authenticated, reader, writer)
            else:
                writer.write(frames.reply({"refused": "no ranks are meeting"}, frames.token(), hello))
            await writer.drain()
        except (OSError, ValueError, KeyError, TypeError, EOFError, TimeoutError, asyncio.CancelledError):
            pass  # nobody of ours, or somebody who has gone, or the job is over
        finally:
            writer.close()

    # -- nodes ---------------------------------------------------------------------------------------------------

    async def _serve_node(
        self, hello: dict[str, Any], authenticated: bool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        problem = self._problem(hello) if authenticated else {"refused": "another token"}
        writer.write(frames.reply(problem or {"joined": True}, frames.token(), hello))
        if problem is not None:
            self._note_refusal(hello, problem if authenticated else None, str(writer.get_extra_info("peername")[0]))
            return
        node = Node(hello, writer, self.clock.now())
        self.nodes.append(node)
        self._no_nodes.clear()
        self._membership_changed()
        why = "its connection has ended"
        try:
            while True:
                self._handle(node, frames.content(await frames.read_frame(reader)))
        except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
            why = str(error) if isinstance(error, OSError) else why
        finally:
            self._lost(node, why)

    def _problem(self, hello: dict[str, Any]) -> dict[str, Any] | None:
        """The reply to a node that cannot take part; None if it can."""
        for name, value in self.job.same.items():
            got = hello["same"].get(name)
            if got != value:
                return {"error": f"this node has another {name} than the job", "expected": value, "got": str(got)}
        if not 0 < int(hello["processes"]) < frames.FRAME:
            return {"error": "this node has no processes"}
        return {"refused": "its job has ended"} if self._finished.is_set() else None

    def _note_refusal(self, hello: dict[str, Any], problem: dict[str, Any] | None, address: str) -> None:
        """Notes a node that came and cannot take part, for the others that miss it; no `problem`: another token."""
        if len(self.refusals) >= REFUSALS or (problem is not None and "error" not in problem):
            return
        if problem is None:
            self.refusals[address] = f"from {address} came another {frames.TOKEN}"
            return
        expected, got = problem.get("expected"), problem.get("got")
        values = "" if expected is None else f" ({got} instead of {expected})"
        self.refusals[str(hello["place"])] = f"{hello['place']} was refused: {problem['error']}{values}"[: frames.TEXT]

    def _handle(self, node: Node, message: dict[str, Any]) -> None:
        node.seen = self.clock.now()
        if "run" in message:
            self.run = str(message["run"])
        elif "signal" in message:
            self._signalled(node, int(message["signal"]))
        elif message.get("attempt") != self.attempt or not node.runs:
            return  # a heartbeat, or a note from an earlier attempt
        elif "all_ended" in message:
            node.runs = False
            self._end_attempt()
        elif "ended" in message:
            self._rank_ended(int(message["ended"]), int(message["code"]), str(message["text"]), bool(message["exited"]))

    def _rank_ended(self, rank: int, code: int, text: str, exited: bool) -> None:
        """A rank has ended, or (if it has not `exited`) will, with an error that it prints."""
        store = self.store
        assert store is not None
        member = store.members.get(rank)
        if code == 0 and store.complete and member is not None and not member.finalized:
            code, text = 1, OS_EXIT
        if code == 0:
            self.succeeded += 1
        store.exited(rank, text)
        if code:
            self._fail(Cause(code, f"rank {rank}: {text}", is_printed=code < 128 and text != OS_EXIT))

    def _fail(self, cause: Cause, within: float = FAILURE_TIMEOUT) -> None:
        """The attempt has failed: the ranks that still run are killed after a while."""
        if self.cause is None and not self.change and self.stopped is None:
            self.cause = cause
            self._send(self.members, stop=0, within=within)

    def _lost(self, node: Node, why: str) -> None:
        if node not in self.nodes:
            return
        self.nodes.remove(node)
        if not self.nodes:
            self._no_nodes.set()
        node.writer.close()
        if node.runs and not self._finished.is_set():
            node.runs = False
            self._fail(Cause(1, f"{node} is lost: {why}"))
            self._end_attempt()
        elif self.store is None:
            self._membership_changed()

    def _signalled(self, node: Node, number: int) -> None:
        """A node was asked to stop. With SIGTERM it leaves the job to the others, if they are enough and it does not
        hold the store."""
        staying = [other for other in self.nodes if other is not node and not other.leaves]
        elastic = self.job.nodes[0] < self.job.nodes[1] and len(staying) >= self.job.nodes[0]
        if number == signal.SIGTERM and elastic and not node.hello["has_store"]:
            node.leaves = True
            if self.store is None or not node.runs:
                self._dismiss()
            elif self.cause is None:
                self.change = True
                self._send([other for other in self.members if other is not node], stop=number, within=self.job.grace)
            return
        self._stop_job(number, node)

    def _stop_job(self, number: int, sender: Node | None) -> None:
        """Stops all ranks by a signal, those of the `sender` excepted, which has done it."""
        if self.stopped is None:
            self.stopped = number
            self._send([node for node in self.members if node is not sender], stop=number, within=self.job.grace)
        if self.store is None:
            self._finish(Outcome(128 + number))

    async def _watch_nodes(self) -> None:
        """Sends heartbeats to the nodes, and misses theirs."""
        limit = self.job.heartbeat
        while limit > 0:
            before = self.clock.now()
            await asyncio.sleep(limit / 6)
            if self.clock.now() - before > limit / 2:  # this process itself was stopped: messages may wait to be read
                for node in self.nodes:
                    node.seen = self.clock.now()
            for node in list(self.nodes):
                if self.clock.now() - node.seen > limit:
                    self._lost(node, f"no heartbeat for {self.clock.now() - node.seen:.0f} s")
            self._send(self.nodes, beat=True)

    def _send(self, nodes: list[Node], **message: Any) -> None:
        if "say" in message and self.report is not None:
            self.report(str(message["say"]))
        for node in nodes:
            with suppress(OSError):
                node.writer.write(frames.frame(message))

    # -- attempts ------------------------------------------------------------------------------------------------

    def _membership_changed(self) -> None:
        """Nodes have come or gone: begins an attempt when they are enough, or stops the current one for more."""
        if self._finished.is_set():
            return
        least, most = self.job.nodes
        if self.store is not None:
            spare = [node for node in self.nodes if not node.runs and not node.leaves and node not in self.members]
            if spare and len(self.members) < most and self.cause is None and not self.change and self.stopped is None:
                self.change = True
                self._send(self.nodes, say=f"{spare[0].hello['place']} joins · continuing on more nodes")
                self._send(self.members, stop=int(signal.SIGTERM), within=self.job.grace)
            return
        if self._timer is not None:
            self._timer.cancel()
        if len(self.nodes) >= most or (len(self.nodes) >= least and self.attempt > 0):
            self._begin_attempt()
        elif len(self.nodes) >= least:
            self._timer = self.loop.call_later(LAST_CALL, self._begin_attempt)
        else:
            self._timer = self.loop.call_later(self.job.timeout, self._give_up)

    def _begin_attempt(self) -> None:
        self.members = self.nodes[: self.job.nodes[1]]
        self.attempt += 1
        self.cause, self.change, self.succeeded, first = None, False, 0, 0
        for node in self.members:
            node.first, node.runs = first, True
            first += node.size
        self.store = Store(
            first, frames.token(), self.clock, str(self.attempt), self.job.heartbeat,
            lambda rank, text: self._fail(Cause(1, text), HUNG_TIMEOUT),
        )  # fmt: skip
        self._greeter.most = first + frames.SPARE
        head = self.members[0].hello
        for number, node in enumerate(self.members):
            self._send([node], start={
                "attempt": self.attempt, "first": node.first, "size": first, "node": number, "nodes": len(self.members),
                "master": [head["address"], head["port"]], "restarts": self.restarts, "run": self.run,
            })  # fmt: skip

    def _end_attempt(self) -> None:
        """Decides what comes next, once all ranks of the attempt have ended."""
        if self.store is None or any(node.runs for node in self.members):
            return
        size, cause, self.store = self.store.size, self.cause, None
        if self.stopped is not None:
            self._finish(Outcome(128 + self.stopped))
        elif self.succeeded == size:
            self._finish(Outcome(0))
        elif self.change:
            self._dismiss()
        elif cause is None:
            self._finish(Outcome(1, "the ranks have ended"))
        elif cause.code in FINAL or self.restarts >= self.job.restarts:
            self._finish(Outcome(cause.code, None if cause.is_printed else cause.text))
        else:
            self.restarts += 1
            again = f"restarting all ranks ({self.restarts} of {self.job.restarts})"
            self._send(self.nodes, say=f"{cause.text} · {again}")
            self._membership_changed()

    def _dismiss(self) -> None:
        """Ends the nodes that leave, and goes on with the others."""
        for node in [node for node in self.nodes if node.leaves]:
            self._send([node], end={"code": 128 + signal.SIGTERM, "text": None})
            self.nodes.remove(node)
        if self.store is None:
            self._membership_changed()

    def _give_up(self) -> None:
        what = f"{len(self.nodes)} of at least {self.job.nodes[0]} nodes are there after {self.job.timeout:g} s"
        self._finish(Outcome(1, " · ".join([what, *self.refusals.values()])))

    def _finish(self, outcome: Outcome) -> None:
        if not self._finished.is_set():
            self._finished.set()
            self.outcome.set_result(outcome)
            self._send(self.nodes, end={"code": outcome.code, "text": outcome.text})
