"""The store where ranks meet that no mpiexec started: a small server at MASTER_ADDR:MASTER_PORT.

Rank 0 starts it as a process of its own, by its path, and it imports nothing of ox. A thread of rank 0 could not serve:
`MPI_Init` holds Python's lock, and the store must outlive a rank 0 that is killed, to tell the others. It ends with the
last connection.

A connection begins with three frames: the store's greeting with a random number, the rank's hello, the reply. Hello and
reply carry an HMAC over that number, with the token as key. Then a connection is one of two kinds:

- *rank*: the store sends one frame when all ranks have come, or an error, and one when a rank has failed. The end
  of this connection is the end of the rank. Rank 0 is told when only it is left.
- *mpi*: the lines of MPICH's process manager interface (PMI-1), with which `MPI_Init` exchanges addresses.

A frame is a length of four bytes and a JSON object. Lengths and numbers of connections are limited, and nothing that is
received is executed or unpickled.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import resource
import secrets
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from time import monotonic
from typing import Any

TOKEN = "OX_RENDEZVOUS_TOKEN"  # the environment variable with the secret of the ranks
PROTOCOL = 1
FRAME = 1 << 16  # the largest frame in bytes
LINE = 1 << 14  # the longest line of PMI in bytes
TEXT = 200  # characters of a text that a rank sends and others are shown
MAC = 32  # bytes of an HMAC
HANDSHAKE = 10.0  # seconds in which a connection must say hello
LINGER = 5.0  # seconds in which a failed store answers ranks that come late, so that they get the same error
LONGEST = 1e6  # the longest time limit in seconds, for the clock of asyncio
SPARE = 64  # connections beside those of the ranks


def token() -> bytes:
    """The secret of the ranks; empty if there is none."""
    return os.environ.get(TOKEN, "").encode()


def mac(secret: bytes, kind: bytes, nonce: str, body: bytes) -> bytes:
    """Proves that the sender of a frame knows the token, and that the frame answers this nonce."""
    return hmac.digest(secret, kind + nonce.encode() + body, hashlib.sha256)


def frame(content: dict[str, Any], secret: bytes | None = None, kind: bytes = b"", nonce: str = "") -> bytes:
    """A frame to send, with an HMAC in front of the content if there is a `secret`."""
    body = json.dumps(content).encode()
    body = body if secret is None else mac(secret, kind, nonce, body) + body
    return len(body).to_bytes(4, "big") + body


def content(body: bytes) -> dict[str, Any]:
    """The object in a frame. Raises ValueError if there is none."""
    try:
        found = json.loads(body)
    except RecursionError:
        raise ValueError("a frame is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("a frame holds a JSON object")
    return found


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


def keep_alive(connection: socket.socket) -> None:
    """Asks the system to end a connection whose other machine does not answer for about 30 seconds."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


@dataclass
class Member:
    """A rank that has come."""

    hello: dict[str, Any]
    writer: asyncio.StreamWriter
    finalized: bool = False  # it has left MPI, so its end is no failure


@dataclass
class Store:
    """The ranks that have come, and what MPI has stored."""

    size: int
    secret: bytes
    members: dict[int, Member] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    in_barrier: list[asyncio.StreamWriter] = field(default_factory=list)
    failure: dict[str, Any] | None = None
    failed_at: float = 0.0
    told: set[int] = field(default_factory=set)  # the ranks that know of the failure
    strangers: set[str] = field(default_factory=set)  # addresses from which another token came
    complete: bool = False  # all ranks have come
    connections: int = 0
    present: int = 0  # ranks that have come and not ended
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.job = f"ox-{secrets.token_hex(8)}"  # MPICH names its shared memory after it

    async def serve(self, listener: socket.socket) -> None:
        """Serves until all ranks have ended."""
        server = await asyncio.start_server(self._connection, sock=listener, limit=FRAME)
        asyncio.get_running_loop().call_later(HANDSHAKE, self._end_if_alone)
        await self.ended.wait()
        server.close()

    def _end_if_alone(self) -> None:
        """Ends a store whose rank 0 was killed before it connected."""
        if self.connections == 0:
            self.ended.set()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            keep_alive(writer.get_extra_info("socket"))
            if self.connections <= 2 * self.size + SPARE:
                await self._conversation(reader, writer)
        except (OSError, ValueError, KeyError, EOFError, TimeoutError):
            pass  # no rank of ours, or one that has gone
        finally:
            writer.close()
            self.connections -= 1
            if self.told >= set(range(self.size)) or (self.complete and self.present == 0):
                self.ended.set()

    async def _conversation(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonce = secrets.token_hex(16)
        writer.write(frame({"store": "ox", "protocol": PROTOCOL, "nonce": nonce, "failed": self.failure is not None}))
        body = await asyncio.wait_for(_read_frame(reader), HANDSHAKE)
        hello = check_hello(content(body[MAC:]))
        known = hmac.compare_digest(body[:MAC], mac(self.secret, b"hello", nonce, body[MAC:]))
        if not known:
            self._note_stranger(str(writer.get_extra_info("peername")[0]))
        refused = None if known else "another token"
        if known and hello["kind"] == "mpi":
            await self._serve_mpi(hello["rank"], hello, reader, writer)
            return
        if refused is None and self.complete:
            refused = "its ranks have already met"
        if refused is None and self.failure is not None and hello["age"] < monotonic() - self.failed_at:
            refused = "its ranks did not meet"  # a rank of the next attempt, which waits for the next store
            if hello["rank"] == 0:
                self.ended.set()  # rank 0 would start it here
        reply = {"refused": refused} if refused else {"joined": True}
        writer.write(frame(reply, self.secret, b"reply", hello["nonce"]))
        if refused is None:
            await self._serve_rank(hello["rank"], hello, reader, writer)
        await writer.drain()

    # -- the meeting ---------------------------------------------------------------------------------------------

    async def _serve_rank(
        self, rank: int, hello: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
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
            self.complete = True
            _release_output()
            for member in self.members.values():
                member.writer.write(frame({"ready": True}))
        self.present += 1
        with suppress(OSError):
            while await reader.read(FRAME):
                pass  # a rank has nothing more to say
        self.present -= 1
        self._end(rank)
        if self.complete and self.failure is None and self.present == 1:
            self.members[0].writer.write(frame({"alone": True}))

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

    def _fail(self, failure: dict[str, Any]) -> None:
        """Ends the meeting: all ranks that have come, and those that come soon, get this error."""
        self.failure, self.failed_at = failure, monotonic()
        for rank, member in self.members.items():
            self.told.add(rank)
            member.writer.write(frame({"error": failure}))
            member.writer.close()
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
        self.failure = {"what": f"rank {rank} {how}"}
        for other, member in self.members.items():
            if other != rank:
                member.writer.write(frame({"ended": rank, "how": how, "code": 1 if code is None else code}))

    def _note_stranger(self, address: str) -> None:
        if len(self.strangers) < SPARE:
            self.strangers.add(address)

    # -- PMI -----------------------------------------------------------------------------------------------------

    async def _serve_mpi(
        self, rank: int, hello: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answers the lines of one rank's MPI."""
        if not self.complete or rank not in self.members:
            return
        writer.write(frame({"joined": True}, self.secret, b"reply", hello["nonce"]))
        while (line := await reader.readline()) and len(line) <= LINE:
            words = dict(word.split("=", 1) for word in line.decode("ascii").split() if "=" in word)
            if words.get("cmd") == "barrier_in":
                self._enter_barrier(writer)
                continue
            if words.get("cmd") == "abort":
                self._end(rank, int(words.get("exitcode", "1")) & 0xFF)
                return
            self.members[rank].finalized |= words.get("cmd") == "finalize"
            writer.write(f"{self._answer(words)}\n".encode())

    def _answer(self, words: dict[str, str]) -> str:
        match words.get("cmd"):
            case "init":
                return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
            case "get_maxes":
                return f"cmd=maxes kvsname_max=256 keylen_max=64 vallen_max={LINE // 4}"
            case "get_appnum":
                return "cmd=appnum appnum=0"
            case "get_universe_size":
                return f"cmd=universe_size size={self.size}"
            case "get_my_kvsname":
                return f"cmd=my_kvsname kvsname={self.job}"
            case "put" if len(self.values) < SPARE * self.size:
                self.values[words["key"]] = words["value"]
                return "cmd=put_result rc=0 msg=success"
            case "get":
                key = words["key"]
                value = self._mapping() if key == "PMI_process_mapping" else self.values.get(key)
                found = value is not None
                return f"cmd=get_result rc=0 msg=success value={value}" if found else (
                    "cmd=get_result rc=-1 msg=key_not_found value=unknown")  # fmt: skip
            case "finalize":
                return "cmd=finalize_ack rc=0"
            case other:  # spawning of processes, publishing of names
                return f"cmd={other}_result rc=-1 msg=not_supported"

    def _enter_barrier(self, writer: asyncio.StreamWriter) -> None:
        self.in_barrier.append(writer)
        if len(self.in_barrier) == self.size:
            for each in self.in_barrier:
                each.write(b"cmd=barrier_out rc=0\n")
            self.in_barrier.clear()

    def _mapping(self) -> str:
        """Which ranks share a machine, for MPI's shared memory: blocks of (first machine, machines, ranks on each)."""
        numbers: dict[str, int] = {}
        machines = [numbers.setdefault(self.members[rank].hello["machine"], len(numbers)) for rank in range(self.size)]
        blocks: list[list[int]] = []
        for machine, ranks in groupby(machines):
            count = len(list(ranks))
            if blocks and blocks[-1][2] == count and sum(blocks[-1][:2]) == machine:
                blocks[-1][1] += 1
            else:
                blocks.append([machine, 1, count])
        return "(vector" + "".join(f",({a},{b},{c})" for a, b, c in blocks) + ")"


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    length = int.from_bytes(await reader.readexactly(4), "big")
    if not MAC < length <= FRAME:
        raise ValueError("a frame of this length is none of ours")
    return await reader.readexactly(length)


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
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    os.chdir("/")  # the folder of the program may be removed

    async def serve() -> None:
        await Store(size, token()).serve(socket.socket(fileno=listener))

    asyncio.run(serve())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
