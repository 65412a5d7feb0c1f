"""The ranks of one node in one attempt of `ox launch`: starting, watching and ending their processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

from ox.clock import Clock
from ox.devices import machine
from ox.distributed import environment, init
from ox.distributed.rank import PIPE
from ox.distributed.rendezvous import STORE

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
OTHER_LAUNCHERS = ("PMI_", "PMIX_", "MPI_LOCAL", "OMPI_COMM", "HYD")  # the beginnings of their variables


@dataclass
class RankProcess:
    """The process of a rank."""

    rank: int
    process: subprocess.Popen[bytes]
    notes: IO[bytes]  # what it tells, a line of JSON each
    unread: bytes = b""
    text: str | None = None  # what it said about its end
    ended: bool = False


@dataclass(frozen=True)
class RankEnd:
    """A rank has ended, or (if it has not `exited`) has raised an error and will."""

    rank: int
    code: int
    text: str
    exited: bool
    time: float


class NodeRanks:
    """Starts the ranks of a node.

    Args:
        command: a script and its arguments, or ``-m``, a module and its arguments.
        count: how many ranks this node has.
        start: the coordinator's message.
        store: the address of the store, ``host:port``.
        timeout: seconds that ranks wait for each other; None for the defaults.
        label: print the rank at the beginning of each line of output.
        clock: which dates the ends of ranks, as theirs does.
    """

    def __init__(
        self, command: Sequence[str], count: int, start: Mapping[str, Any], store: str, timeout: float | None,
        label: bool, clock: Clock,
    ) -> None:  # fmt: skip
        self._clock = clock
        self.attempt = int(start["attempt"])
        self.run: str | None = None  # the run that a rank has created
        self._threads: list[threading.Thread] = []
        shared = _environment(count, start, store, timeout)
        self._ranks = [self._start(command, number, shared, int(start["first"]), label) for number in range(count)]

    def _start(
        self, command: Sequence[str], number: int, shared: dict[str, str], first: int, label: bool
    ) -> RankProcess:
        read, write = os.pipe()
        try:
            env = shared | {"RANK": str(first + number), "LOCAL_RANK": str(number), PIPE: f"{write} {os.getpid()}"}
            output = subprocess.PIPE if label else None
            # Its own session: Ctrl-C reaches only the launch, which forwards it once.
            process = subprocess.Popen(
                [sys.executable, "-m", "ox.distributed.rank", *command], env=env, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, pass_fds=[write], start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(write)
        for source, target in ((process.stdout, 1), (process.stderr, 2)):
            if source is not None:
                copy = threading.Thread(target=_copy_labelled, args=(source, target, first + number), daemon=True)
                copy.start()
                self._threads.append(copy)
        os.set_blocking(read, False)
        return RankProcess(first + number, process, os.fdopen(read, "rb", buffering=0))

    def poll(self) -> list[RankEnd]:
        """The ranks that have failed or ended since the last call, the earliest first."""
        ends = []
        for rank in self._ranks:
            if rank.ended:
                continue
            code = rank.process.poll()  # before the notes are read, so that none is missed
            for note in self._notes(rank):
                self.run = note.get("run", self.run)
                if "ended" in note and rank.text is None:
                    rank.text = str(note["text"])
                    ends.append(RankEnd(rank.rank, int(note["ended"]), rank.text, False, float(note["time"])))
            if code is None:
                continue
            rank.ended = True
            rank.notes.close()
            text = f"killed by signal {-code}" if code < 0 else rank.text or f"exit code {code}"
            ends.append(RankEnd(rank.rank, 128 - code if code < 0 else code, text, True, self._clock.now()))
        return sorted(ends, key=lambda end: (end.time, end.rank))

    @staticmethod
    def _notes(rank: RankProcess) -> Iterator[dict[str, Any]]:
        with suppress(OSError):
            while data := rank.notes.read(1 << 16):
                rank.unread += data
        *lines, rank.unread = rank.unread.split(b"\n")
        for line in lines:
            with suppress(ValueError):
                yield json.loads(line)

    @property
    def running(self) -> bool:
        return not all(rank.ended for rank in self._ranks)

    def signal(self, number: int) -> None:
        """Sends a signal to each rank that runs."""
        for rank in self._ranks:
            if not rank.ended:
                with suppress(ProcessLookupError):
                    os.kill(rank.process.pid, number)

    def kill(self) -> None:
        """Ends all ranks at once, also those that are stopped."""
        self.signal(signal.SIGKILL)

    def close(self) -> None:
        """After the last rank: prints what is left of the output. A child process of a rank may keep it open."""
        for thread in self._threads:
            thread.join(5.0)


def _environment(count: int, start: Mapping[str, Any], store: str, timeout: float | None) -> dict[str, str]:
    """The variables of all ranks of this node; those of torchrun are for scripts that read them."""
    share = str(max(1, machine.limit().threads // count))
    clean = {name: value for name, value in os.environ.items() if not name.startswith(OTHER_LAUNCHERS)}
    host, port = start["master"]
    found = {
        **dict.fromkeys(THREADS, share), **clean, STORE: store, environment.ATTEMPT: str(start["attempt"]),
        "WORLD_SIZE": str(start["size"]), "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": str(host),
        "MASTER_PORT": str(port), "GROUP_RANK": str(start["node"]), "GROUP_WORLD_SIZE": str(start["nodes"]),
        "TORCHELASTIC_RESTART_COUNT": str(start["restarts"]),
    }  # fmt: skip
    if timeout is not None:
        found[init.TIMEOUT] = f"{timeout:g}"
    if start["run"] is not None:
        found[init.RUN] = str(start["run"])
    return found


def _copy_labelled(source: IO[bytes], target: int, rank: int) -> None:
    """Copies the lines of a rank's output, with the rank in front."""
    with source:
        for line in source:
            os.write(target, b"[%d] " % rank + line)
