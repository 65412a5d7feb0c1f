"""How ranks meet: at a store (`ox.distributed.store`), whose address all know.

`ox launch` serves the store. For other launchers, rank 0 starts it at `MASTER_ADDR` and `MASTER_PORT`. All ranks
connect and wait for each other; then each gets a second connection, which it hands to MPI as its process manager
(`PMI_FD`), unless mpiexec or srun is one. So MPI starts without mpiexec and ssh. The first connection stays: by it the
others learn when this rank ends or hangs, and this rank when another does.
"""

from __future__ import annotations

import atexit
import errno
import hashlib
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any
from zlib import crc32

from ox._version import __version__
from ox.clock import Clock
from ox.distributed import frames, heartbeat, ports, store, store_watch
from ox.distributed.client import REPLY_TIMEOUT, NoStore, connect, receive
from ox.distributed.environment import ATTEMPT, Launch
from ox.errors import ArgumentError, DistributedError

STORE_PROCESS = str(Path(store.__file__).with_name("store_process.py"))
PORT = "OX_RENDEZVOUS_PORT"  # the environment variable with the port of the store, if it is not MASTER_PORT
STORE = "OX_LAUNCH_STORE"  # the environment variable with the address of the store of `ox launch`
BIND_TIMEOUT = store.LINGER + 3.0  # seconds in which the store of an earlier attempt may give up the port
LEAVE_TIMEOUT = 10.0  # seconds for which rank 0 waits for the others at its end: with a container ends its store
EARLY_TIMEOUT = (0.5, 5.0)  # seconds in which a rank that ends before the meeting tells the store; after an error
PMI = ("PMI_FD", "PMI_RANK", "PMI_SIZE")
HASHED_PORTS = range(20000, 30000)  # below those that systems give to outgoing connections

_places: list[str] = []  # of each rank, once all have met
_connection: list[tuple[socket.socket, float]] = []  # to the store, and the seconds for which it may be silent


@contextmanager
def met(here: Launch, limit: float, age: float, clock: Clock) -> Iterator[None]:
    """Waits for all ranks. Inside the block MPI can start; after it, this rank ends when another one has ended.

    `age`: seconds for which this rank has belonged to the attempt to start all. By it a store that has failed tells a
    rank that is late from one of the next attempt.

    Raises:
        DistributedError: a rank is missing after `limit` seconds or ended, ranks do not fit together, or the port of
            the store is in use. ArgumentError: no address.
    """
    rank, until = here.rank, clock.now() + limit
    named, port = address(os.environ, here)
    host, hello = named, _hello(rank, here.size, limit, age)
    if rank == 0 and here.by != "ox":
        _start_store(host, port, hello, clock)
        host = "127.0.0.1" if not ports.is_loopback(host) else host
    connection = _join(hello, host, port, limit, until, clock)
    try:
        _wait_for_all(connection, rank, host, port, until, clock)
    except DistributedError as error:
        if rank == 0 and here.by != "ox" and (problem := _not_here(named)):
            error.extra["MASTER_ADDR"] = problem
        raise
    # `ox launch` watches its own store; it may be stopped (Ctrl-Z) and continue.
    silence = 0.0 if here.by == "ox" else frames.heartbeat_timeout()
    _connection[:] = [(connection, silence)]
    with (
        store_watch.exit_on_message(connection, rank, clock),
        nullcontext() if here.by == "mpi" else _manager(here, hello, host, port, until, clock),
    ):
        yield
    # The system closes this one, not Python at its end: MPICH takes leave of the store after that.
    lasting = [os.dup(connection.fileno())]

    def close_in_child() -> None:  # or a worker would keep the connection of a killed rank
        connection.close()
        while lasting:
            os.close(lasting.pop())

    os.register_at_fork(after_in_child=close_in_child)
    watch = threading.Thread(
        target=store_watch.watch, args=(connection, rank, clock, silence), name="ox-rendezvous", daemon=True
    )
    watch.start()
    heartbeat.Heartbeat(connection, clock)
    if rank == 0 and here.by != "ox":  # MPI's own end is registered later, so it comes before
        atexit.register(watch.join, LEAVE_TIMEOUT)


@contextmanager
def _manager(here: Launch, hello: dict[str, Any], host: str, port: int, until: float, clock: Clock) -> Iterator[None]:
    """A context in which MPI finds the store as its process manager."""
    gone = f"the store at {host}:{port} has gone"
    manager = _connected({**hello, "kind": "mpi"}, host, port, until, clock, gone, "the output of rank 0 says why")
    manager.settimeout(None)
    os.environ.update(zip(PMI, (str(manager.detach()), str(here.rank), str(here.size)), strict=True))
    try:
        yield
    finally:
        for name in PMI:  # programs that this rank starts are no ranks
            os.environ.pop(name, None)


def place_of(rank: int) -> str:
    """Where a rank is: ``process 12 on node7``; empty if it is not known."""
    return _places[rank] if rank < len(_places) else ""


def leave() -> None:
    """Tells the store that the end of this rank is no failure. Waits for its answer, for MPI's end needs the store, and
    would wait for one that is stopped for ever; so long `store_watch` can end this rank."""
    for connection, silence in _connection:
        with suppress(OSError):
            connection.sendall(frames.frame({"left": True}))
            store_watch.answered.wait(2 * silence)


def tell_early_exit(here: Launch, clock: Clock) -> None:
    """Tells the others that this rank ends without a meeting, if the store can be reached."""
    failed = hasattr(sys, "last_value")
    until = clock.now() + EARLY_TIMEOUT[failed]
    with suppress(DistributedError, ValueError, OSError):
        host, port = address(os.environ, here)
        hello = _hello(here.rank, here.size, EARLY_TIMEOUT[failed], 0.0) | {"ended": "ended without a call of it"}
        if here.rank == 0:
            _start_store(host, port, hello, clock)
            host = "127.0.0.1" if not ports.is_loopback(host) else host
        _join(hello, host, port, EARLY_TIMEOUT[failed], until, clock).close()
        clock.sleep(store_watch.GRACE if failed else 0.0)  # mpiexec ends the others when it sees the end of this rank


# -- the address -------------------------------------------------------------------------------------------------


def address(env: Mapping[str, str], here: Launch) -> tuple[str, int]:
    """Host and port of the store, from the variables of the launcher.

    The port is MASTER_PORT. torchrun's own store occupies that port; srun, and mpiexec on one machine, name no port:
    then the port is computed from what all ranks of the job know.

    Raises:
        ArgumentError: there is no address, or a port that is no port.
    """
    if here.by == "ox":
        host, _, port = env[STORE].rpartition(":")
        return host, int(port)
    named = env.get("MASTER_ADDR") and env.get("MASTER_PORT")
    if here.by == "mpi" and here.local_size == here.size and not named and (mpiexec := _mpiexec()):
        return "127.0.0.1", int(_hashed_port(*mpiexec))
    host, port = env.get("MASTER_ADDR") or _first_host(env.get("SLURM_STEP_NODELIST", "")), env.get("MASTER_PORT", "")
    of_torchrun = env.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    step = [env[name] for name in ("SLURM_JOB_ID", "SLURM_STEP_ID") if name in env]
    if PORT in env:
        port = env[PORT]
    elif of_torchrun:
        run = (env.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"))
        port = _hashed_port(host, port, *run)
    elif not port and step:
        port = _hashed_port(*step)
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise ArgumentError(
            "ranks meet at the machine of rank 0", expected="MASTER_ADDR and MASTER_PORT", where="",
            got=f"{host or 'no address'}:{port or 'no port'}",
            hint="set them on all ranks, or start the ranks with ox launch, torchrun or srun",
        )  # fmt: skip
    return host, int(port)


def _hashed_port(*words: str) -> str:
    return str(HASHED_PORTS[crc32("/".join(words).encode()) % len(HASHED_PORTS)])


def _mpiexec() -> tuple[str, ...]:
    """What distinguishes the mpiexec of this rank on its machine: number and start of its proxy, which started all
    ranks; a shell may stand between. Empty if there is none: srun is the process manager of MPI, too."""
    number = os.getppid()
    try:
        while number > 1:
            name = Path(f"/proc/{number}/comm").read_text()
            fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
            if "pmi_proxy" in name:
                return str(number), fields[19]
            number = int(fields[1])
    except OSError:  # a system without /proc
        return (str(os.getppid()),)
    return ()


def _first_host(nodes: str) -> str:
    """The first host of Slurm's ``node[003-006,009],other``."""
    found = re.match(r"([^\[,]*)(?:\[(\d+)[^\]]*\])?([^\[,]*)", nodes)
    return "" if found is None else "".join(part or "" for part in found.groups())


# -- rank 0 ------------------------------------------------------------------------------------------------------


def _start_store(host: str, port: int, hello: dict[str, Any], clock: Clock) -> None:
    """Opens the port and starts the store there. On a loopback address only this machine can reach it."""
    with _listener(host, port, hello, clock) as listener:
        listener.set_inheritable(True)
        # No subprocess.Popen, which warns of a process that nobody waits for: the store ends after this rank.
        command = [sys.executable, "-IS", STORE_PROCESS, str(listener.fileno()), str(hello["size"])]
        store_watch.store_process[:] = [os.posix_spawn(
            sys.executable, command, os.environ,
            file_actions=[(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1)],
        )]  # fmt: skip


def _listener(host: str, port: int, hello: dict[str, Any], clock: Clock) -> socket.socket:
    until = clock.now() + min(BIND_TIMEOUT, hello["limit"])
    backlog = min(hello["size"] + frames.SPARE, socket.SOMAXCONN)
    while True:
        try:
            return ports.listen(host, port, backlog)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                problem = _occupant(host, port, hello, clock)
            else:
                problem, until = DistributedError(f"rank 0 cannot open port {port}", got=str(error), where="rank 0"), 0
            if clock.now() > until:
                raise problem from error
            clock.sleep(0.1)


def _occupant(host: str, port: int, hello: dict[str, Any], clock: Clock) -> DistributedError:
    """The error for a port in use. If ranks of this job meet there, raises what they raise: rank 0 came twice."""
    used = f"port {port} is in use"
    extra: dict[str, str] = {}
    try:
        here = host if ports.is_loopback(host) else "127.0.0.1"
        until = clock.now() + min(REPLY_TIMEOUT, hello["limit"])
        connection = connect(here, port, hello, until, f"rank {hello['rank']}", clock)
    except NoStore as error:
        extra = {"there": str(error)}
    except OSError as error:
        extra = {"there": f"something that is no store of ox ({error})"}
    else:
        _wait_for_all(connection, 0, here, port, clock.now() + hello["limit"], clock)
    return DistributedError(
        used, where="rank 0", extra=extra, hint=f"another MASTER_PORT, or {PORT}, the same on all ranks"
    )  # fmt: skip


def _not_here(host: str) -> str:
    """What looks wrong with the address of rank 0; empty for one of this machine. A proxy's may lead here, too."""
    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        return f"{host}: {error.strerror}"
    return "" if ports.is_local(host) else f"{host} is no address of this machine, on which rank 0 runs"


# -- all ranks ---------------------------------------------------------------------------------------------------


def _hello(rank: int, size: int, limit: float, age: float) -> dict[str, Any]:
    """What a rank says of itself. The items of `same` must be equal on all ranks."""
    return {
        "kind": "rank", "rank": rank, "size": size, "limit": limit, "age": age, "machine": _machine(),
        "attempt": os.environ.get(ATTEMPT, ""),
        "place": f"process {os.getpid()} on {socket.gethostname()}",
        "same": {
            "WORLD_SIZE": str(size), "the version of ox": __version__, "their script": _script(),
            frames.HEARTBEAT: f"{frames.heartbeat_timeout():g}",
        },
    }  # fmt: skip


def _machine() -> str:
    """The same text for ranks that can share memory: on one machine, and not in containers of their own."""
    words = [socket.gethostname()]
    with suppress(OSError):
        words.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with suppress(OSError):
        words.append(str(os.stat("/dev/shm").st_dev))
    with suppress(OSError):
        words.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(words)


def _script() -> str:
    """Name and hash of the program's main file. The first line of a command differs where its Python lies elsewhere."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        code = Path(path).read_bytes() if path else b""
    except OSError:
        return "unreadable"
    code = code.partition(b"\n")[2] if code.startswith(b"#!") else code
    return f"{Path(path).name}, SHA-256 {hashlib.sha256(code).hexdigest()[:16]}" if path else "none"


def _join(hello: dict[str, Any], host: str, port: int, limit: float, until: float, clock: Clock) -> socket.socket:
    """Connects to the store, which rank 0 may yet have to start."""
    return _connected(
        hello, host, port, until, clock,
        f"rank 0 did not come to init_process_group within {limit:g} s: no store of ox at {host}:{port}",
        "MASTER_ADDR is the machine of rank 0, and MASTER_PORT the same on all ranks; init_process_group(timeout=...)",
    )  # fmt: skip


def _connected(
    hello: dict[str, Any], host: str, port: int, until: float, clock: Clock, what: str, hint: str
) -> socket.socket:
    """A connection to the store; tries until it succeeds or the time is over, for strangers may crowd the port. Raises
    a DistributedError that says `what`."""
    where, pause = f"rank {hello['rank']}", 0.02
    while True:
        try:
            return connect(host, port, hello, until, where, clock)
        except (OSError, NoStore) as error:
            if clock.now() + pause > until:
                raise DistributedError(what, where=where, got=str(error), hint=hint) from error
        clock.sleep(pause)
        pause = min(2 * pause, 0.5)


def _wait_for_all(connection: socket.socket, rank: int, host: str, port: int, until: float, clock: Clock) -> None:
    """Waits until the store says that all ranks have come. Raises the DistributedError that it says otherwise."""
    # the store watches the time limit
    connection.settimeout(min(max(0.0, until - clock.now()), frames.LONGEST) + REPLY_TIMEOUT)
    try:
        message = receive(connection)
    except (OSError, ValueError) as error:
        connection.close()
        raise DistributedError(
            f"the store at {host}:{port} has gone, and with it rank 0", where=f"rank {rank}", got=str(error),
            hint="the output of rank 0 says why",
        ) from error  # fmt: skip
    connection.settimeout(None)
    _places[:] = message.get("places", [])
    if "error" in message:
        connection.close()
        failure = message["error"]
        raise DistributedError(
            str(failure["what"]), where=f"rank {rank}", expected=failure.get("expected"), hint=failure.get("hint"),
            extra={str(label): str(text) for label, text in failure.get("extra", {}).items()},
        )  # fmt: skip
