"""The store, where ranks meet: a small server whose address all ranks know.

`ox launch` serves it itself. For other launchers, rank 0 starts it as a process of its own (`store_process.py`): a
thread of rank 0 could not serve, because `MPI_Init` holds Python's lock, and the store must outlive a rank 0 that is
killed, to tell the others. It ends with the last connection. Imports nothing of ox but what does the same.

A connection (`ox.distributed.frames`) is one of two kinds:

- *rank*: the store sends one frame when all ranks have come, or an error, and one when a rank has failed or hangs. The
  rank sends its heartbeat, which the store answers. The end of this connection is the end of the rank. Rank 0 is told
  when only it is left.
- *mpi*: the lines of MPICH's process manager interface (`ox.distributed.pmi`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ox.clock import SYSTEM, Clock
from ox.distributed import pmi
from ox.distributed.frames import (
    FRAME,
    HANDSHAKE,
    LONGEST,
    SPARE,
    TEXT,
    TOKEN,
    Greeter,
    content,
    frame,
    heartbeat_timeout,
    keep_alive,
    read_frame,
    reply,
    token,
)  # fmt: skip

LINGER = 5.0  # seconds in which a failed store answers ranks that come late, so that they get the same error
CHECKS = 1.0  # seconds between checks of the heartbeats


def check_hello(hello: dict[str, Any]) -> dict[str, Any]:
    """A rank's hello as it came. Raises ValueError if something in it is missing or of another type."""
    texts = ("kind", "nonce", "machine", "place")
    numbers = ("age", "limit", "remaining")
    good = (
        all(isinstance(hello.get(name), str) for name in texts)
        and all(isinstance(hello.get(name), int | float) and hello[name] >= 0 for name in numbers)
        and type(hello.get("rank")) is int
        and isinstance(hello.get("same"), dict)
    )
    if not good:
        raise ValueError("a hello that no rank sends")
    return hello


@dataclass
class Member:
    """A rank that has come."""

    hello: dict[str, Any]
    writer: asyncio.StreamWriter
    finalized: bool = False  # it has left MPI, so its end is no failure
    beat: float = 0.0  # when its last heartbeat came, or when all ranks had come
    starts: bool = True  # it has sent no heartbeat yet: MPI starts
    idle: float = 0.0  # for how many seconds it had used no processor time then
    waits: float = 0.0  # for how many seconds it had waited in an operation
    operation: str = ""


@dataclass
class Store:
    """The ranks that have come, and what MPI has stored.

    Args:
        size: the number of ranks.
        secret: the token.
        clock: by which ranks are late.
        attempt: the attempt of `ox launch` to which the ranks belong.
        heartbeat: seconds without a heartbeat after which a rank counts as hung; 0: never.
        on_hang: called with a rank that hangs, and what is known.
    """

    size: int
    secret: bytes
    clock: Clock
    attempt: str = ""
    heartbeat: float = 0.0
    on_hang: Callable[[int, str], None] | None = None
    members: dict[int, Member] = field(default_factory=dict)
    failure: dict[str, Any] | None = None
    failed_at: float = 0.0
    told: set[int] = field(default_factory=set)  # the ranks that know of the failure
    strangers: set[str] = field(default_factory=set)  # addresses from which another token came
    complete: bool = False  # all ranks have come
    connections: int = 0
    present: int = 0  # ranks that have come and not ended
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    manager: pmi.Manager | None = None
    _watch: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self._greeter = Greeter(self.secret, self.size + SPARE)

    async def serve(self, listener: socket.socket) -> None:
        """Serves until all ranks have ended."""
        server = await asyncio.start_server(self._connection, sock=listener, limit=FRAME)
        asyncio.get_running_loop().call_later(HANDSHAKE, self._end_if_alone)
        await self.ended.wait()
        server.close()

    def _end_if_alone(self) -> None:
        """Ends a store whose rank 0 was killed before it connected. A stranger may have been there the last time."""
        if self.connections == 0:
            self.ended.set()
        asyncio.get_running_loop().call_later(HANDSHAKE, self._end_if_alone)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            keep_alive(writer.get_extra_info("socket"))
            hello, authenticated = await self._greeter.greet(reader, writer, self.failure is not None)
            await self.converse(hello, authenticated, reader, writer)
        except (OSError, ValueError, KeyError, EOFError, TimeoutError, asyncio.CancelledError):
            pass  # no rank of ours, or one that has gone, or this store ends
        finally:
            writer.close()
            self.connections -= 1
            if self.told >= set(range(self.size)) or (self.complete and self.present == 0):
                self.ended.set()

    async def converse(
        self, hello: dict[str, Any], authenticated: bool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Serves a connection that has said hello; `authenticated`: it knows the token."""
        check_hello(hello)
        if not authenticated:
            self._note_stranger(str(writer.get_extra_info("peername")[0]))
        refused = None if authenticated else "another token"
        if authenticated and hello["kind"] == "mpi":
            await self._serve_mpi(hello["rank"], hello, reader, writer)
            return
        if refused is None and self.complete:
            refused = "its ranks have already met"
        late = self.failure is not None and not self.attempt and hello["age"] < self.clock.now() - self.failed_at
        if refused is None and late:
            refused = "its ranks did not meet"  # a rank of the next attempt, which waits for the next store
            if hello["rank"] == 0:
                self.ended.set()  # rank 0 would start it here
        if refused is None and hello.get("attempt", "") != self.attempt:
            refused = "another attempt of ox launch"
        answer = {"refused": refused} if refused else {"joined": True}
        writer.write(reply(answer, self.secret, hello))
        if refused is None:
            await self._serve_rank(hello["rank"], hello, reader, writer)
        await writer.drain()

    # -- the meeting ---------------------------------------------------------------------------------------------

    async def _serve_rank(
        self, rank: int, hello: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if "ended" in hello:
            self.exited(rank, str(hello["ended"]))
            return
        if self.failure is None:
            problem = self._problem(rank, hello)
            if problem is not None:
                self._fail(problem)
        if self.failure is not None:
            self.told.add(rank)
            writer.write(frame({"error": self.failure}))
            return
        self.members[rank] = Member(hello, writer)
        asyncio.get_running_loop().call_later(min(hello["remaining"], LONGEST), self._expire, hello["limit"])
        if len(self.members) == self.size:
            self._complete()
        self.present += 1
        with suppress(OSError, ValueError, EOFError):
            while True:
                self._note_beat(self.members[rank], content(await read_frame(reader)))
        self.present -= 1
        self._end(rank)
        if self.complete and self.failure is None and self.present == 1:
            self.members[0].writer.write(frame({"alone": True}))

    def _complete(self) -> None:
        """All ranks have come."""
        self.complete = True
        ranks = [self.members[rank] for rank in range(self.size)]
        self.manager = pmi.Manager(self.size, [member.hello["machine"] for member in ranks])
        ready = frame({"ready": True, "places": [member.hello["place"][:TEXT] for member in ranks]})
        if not self.attempt:
            _release_output()
        for member in ranks:
            member.beat = self.clock.now()
            member.writer.write(ready)
        if self.heartbeat > 0:
            self._watch = asyncio.create_task(self._watch_heartbeats())

    def _problem(self, rank: int, hello: dict[str, Any]) -> dict[str, Any] | None:
        """Why a rank cannot be one of these; None if it can."""
        for other, member in self.members.items():
            for name, value in hello["same"].items():
                expected = member.hello["same"].get(name)
                if value != expected:
                    extra = {f"rank {other}": _shown(expected, member.hello), f"rank {rank}": _shown(value, hello)}
                    return {"what": f"rank {other} and rank {rank} differ in {name[:TEXT]}", "extra": extra}
        if rank in self.members:
            extra = {"one": self.members[rank].hello["place"][:TEXT], "the other": hello["place"][:TEXT]}
            return {"what": f"two processes have RANK={rank}", "extra": extra}
        if not 0 <= rank < self.size:
            return {"what": f"there is no rank {rank} of {self.size} ranks", "hint": "RANK begins with 0"}
        return None

    def _expire(self, limit: float) -> None:
        """The first rank whose time is over ends the meeting for all."""
        if self.complete or self.failure is not None:
            return
        missing = [str(rank) for rank in range(self.size) if rank not in self.members]
        what = f"rank{'s' * (len(missing) > 1)} {', '.join(missing)} did not come to init_process_group"
        self._fail({
            "what": f"{what[:FRAME // 4]} within {limit:g} s",
            "expected": f"{self.size} ranks",
            "extra": dict.fromkeys(sorted(self.strangers), f"from here came another {TOKEN}"),
            "hint": "the output of the missing ranks says why; init_process_group(timeout=...) waits longer",
        })  # fmt: skip

    def exited(self, rank: int, text: str) -> None:
        """A rank has ended, as its launcher or itself says: those that wait for it need not wait longer."""
        if self.failure is None and not self.complete and rank not in self.members:
            self._fail({
                "what": f"rank {rank} ended before init_process_group", "extra": {f"rank {rank}": text[:TEXT]},
                "hint": "the output of the rank that ended says why",
            })  # fmt: skip

    def _fail(self, failure: dict[str, Any]) -> None:
        """Ends the meeting: all ranks that have come, and those that come soon, get this error."""
        self.failure, self.failed_at = failure, self.clock.now()
        for rank, member in self.members.items():
            self.told.add(rank)
            member.writer.write(frame({"error": failure}))
            member.writer.close()
        if not self.attempt:
            _release_output()
            asyncio.get_running_loop().call_later(LINGER, self.ended.set)

    def _end(self, rank: int, code: int | None = None) -> None:
        """A rank has ended, or aborts with an exit code."""
        if self.failure is not None or self.members[rank].finalized:
            return
        if not self.complete:
            self._fail({"what": f"rank {rank} ended before all ranks had come to init_process_group",
                        "hint": "the output of the rank that ended says why"})  # fmt: skip
            return
        how = "ended without the end of the program" if code is None else f"ended all ranks with exit code {code}"
        self._tell(rank, how, 1 if code is None else code)

    def _tell(self, rank: int, how: str, code: int) -> None:
        """Tells the other ranks, which then end, too."""
        self.failure = {"what": f"rank {rank} {how}"}
        for other, member in self.members.items():
            if other != rank:
                member.writer.write(frame({"ended": rank, "how": how, "code": code}))

    def _note_stranger(self, address: str) -> None:
        if len(self.strangers) < SPARE:
            self.strangers.add(address)

    # -- the heartbeat -------------------------------------------------------------------------------------------

    def _note_beat(self, member: Member, beat: dict[str, Any]) -> None:
        if "left" in beat:
            member.finalized = True
            member.writer.write(frame({"left": True}))
            return
        member.writer.write(frame({"beat": True}))  # this store runs, too
        member.beat, member.starts = self.clock.now(), False
        member.idle, member.waits = float(beat["idle"]), float(beat["waits"])
        member.operation = str(beat["operation"])[:TEXT]

    async def _watch_heartbeats(self) -> None:
        checked = self.clock.now()
        while self.failure is None:
            await asyncio.sleep(CHECKS)
            now = self.clock.now()
            if (late := now - checked - CHECKS) > CHECKS:  # this process was stopped: heartbeats may wait to be read
                for member in self.members.values():
                    member.beat += late
            checked = now
            hung = self.hung(now)
            if hung is not None and self.failure is None:
                rank, how = hung
                self._tell(rank, f"({self.members[rank].hello['place'][:TEXT]}) {how}", 1)
                if self.on_hang is not None:
                    self.on_hang(rank, self.failure["what"])  # type: ignore[index]

    def hung(self, now: float) -> tuple[int, str] | None:
        """A rank that hangs, and how it is known; None if there is none.

        Either it has sent no heartbeat, or it uses no processor time while another rank waits for it."""
        there = {rank: member for rank, member in self.members.items() if not member.finalized}
        for rank, member in there.items():
            if now - member.beat > (max(self.heartbeat, member.hello["limit"]) if member.starts else self.heartbeat):
                return rank, f"hangs or is cut off: no heartbeat for {now - member.beat:.0f} s"
        waiting = {rank: member for rank, member in there.items() if member.waits > self.heartbeat}
        for other, its in waiting.items():
            for rank, member in there.items():
                if not member.waits and member.idle > self.heartbeat:
                    idle = f"hangs: no processor time used for {member.idle:.0f} s"
                    return rank, f"{idle}, while rank {other} waits in {its.operation}"
        return None

    # -- PMI -----------------------------------------------------------------------------------------------------

    async def _serve_mpi(
        self, rank: int, hello: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answers the lines of one rank's MPI."""
        if self.manager is None or rank not in self.members:
            return
        writer.write(reply({"joined": True}, self.secret, hello))
        while (line := await reader.readline()) and len(line) <= pmi.LINE:
            words = pmi.words(line)
            if words.get("cmd") == "barrier_in":
                self.manager.enter_barrier(writer)
                continue
            if words.get("cmd") == "abort":
                self._end(rank, int(words.get("exitcode", "1")) & 0xFF)
                return
            self.members[rank].finalized |= words.get("cmd") == "finalize"
            writer.write(f"{self.manager.answer(words)}\n".encode())


def _release_output() -> None:
    """Closes rank 0's stderr, so that who reads it until its end need not wait for the store."""
    with suppress(OSError):
        os.dup2(0, 2)  # /dev/null


def _shown(value: Any, hello: dict[str, Any]) -> str:
    return f"{value}, {hello['place']}"[:TEXT]


def main(listener: int, size: int) -> None:
    """Serves at a listening socket that rank 0 has opened."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # terminals and launchers send them to the ranks
    with suppress(ImportError, OSError, ValueError):  # Windows has no such limit
        import resource

        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    os.chdir("/")  # the folder of the program may be removed

    async def serve() -> None:
        await Store(size, token(), SYSTEM, heartbeat=heartbeat_timeout()).serve(socket.socket(fileno=listener))

    SYSTEM.run(serve())
