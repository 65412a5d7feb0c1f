"""Starts the ranks of a program with mpiexec, watches them, and starts them again: what `ox launch` does."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from socket import socket
from time import monotonic, sleep
from types import FrameType
from typing import Any

from ox import temporary
from ox.devices import machine
from ox.distributed import keeper, start
from ox.distributed.mpiexec_output import without_banner
from ox.errors import ArgumentError, DeviceError

FINAL = (0, 2, 130, 143)  # exit codes after which nothing is started again: done, wrong usage, Ctrl-C, SIGTERM
PATIENCE = 60.0  # seconds between asking the ranks to stop and stopping them
AFTER = 5.0  # seconds that the others have when one has died
DONE, KILLED = "exit code 0", "killed"
CODE = re.compile(r"(exit code|killed by signal) (\d+)")
HOST = re.compile(r"[A-Za-z0-9_.-]+(:[1-9]\d*)?(\s+\w+=\S+)*")
SIGNALS = 64  # the largest number of a signal
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Plan:
    """What to start.

    Args:
        command: a page and its arguments, or ``-m``, a module and its arguments.
        ranks: how many processes; None for as many as the host file has slots, or as this machine has cores.
        hosts: a file of ``host:slots`` lines, for several machines that share the working folder.
        restarts: how often to start again what failed.
        timeout: seconds that ranks wait for one another; None for the defaults.
        label: whether each line of output begins with its rank.
    """

    command: Sequence[str]
    ranks: int | None = None
    hosts: Path | None = None
    restarts: int = 0
    timeout: float | None = None
    label: bool = False


def mpiexec() -> str:
    """The `mpiexec` of the MPI that mpi4py uses. Raises DeviceError where mpi4py or MPI is not installed."""
    from ox.distributed import mpi

    mpi.library()
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        raise DeviceError("there is no mpiexec, which starts the ranks", hint=mpi.INSTALL)
    return found


def run(plan: Plan, say: Callable[[str], None]) -> int:
    """Start the ranks and wait for their end; `say` shows a line to the user. Returns the exit code.

    Raises:
        DeviceError: mpi4py or mpiexec is missing. ArgumentError: no such page or host file, or too few ranks.
    """
    program = mpiexec()
    _check(plan)
    cores = machine.limit().threads
    if plan.hosts is None and (plan.ranks or 0) > cores:
        say(f"{plan.ranks} processes on {cores} core{'s' * (cores != 1)}: they take turns, and each has a copy of all")
    with temporary.folder(".ox-launch-", Path.cwd() if plan.hosts else None) as folder:
        for attempt in range(plan.restarts + 1):
            here = folder / str(attempt)
            here.mkdir()
            launched = Launched(plan, program, here)
            code = launched.wait()
            if code in FINAL or launched.stopped or attempt == plan.restarts:
                if launched.silent(code):
                    say(launched.cause(code))
                return code
            say(f"{launched.cause(code)} · starting all ranks again ({attempt + 1} of {plan.restarts})")
    return code


def tried(program: str) -> str:
    """Whether two processes that `program` starts find each other, in words."""
    code = (
        "import ox, ox.distributed as d; d.init_process_group(timeout=30); x = ox.ones(1); d.all_reduce(x); "
        "print(int(x.item())); d.destroy_process_group()"
    )
    line = [program, "-n", "2", sys.executable, "-c", code]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"two processes do not find each other: {type(error).__name__}"
    if "".join(done.stdout.split()) == "22":  # mpiexec lets lines of several ranks run into each other
        return "two processes found each other"
    said = (done.stderr or done.stdout).strip().splitlines()
    return f"two processes do not find each other: {said[-1] if said else f'exit code {done.returncode}'}"


def _check(plan: Plan) -> None:
    if plan.ranks is not None and plan.ranks < 1:
        raise ArgumentError("at least one process is needed", got=str(plan.ranks))
    if plan.hosts is not None and not plan.hosts.is_file():
        raise ArgumentError(f"there is no host file {plan.hosts}", expected="lines such as node1:4")
    if plan.hosts is not None:
        _check_hosts(plan.hosts)
    if not plan.command:
        raise ArgumentError("there is nothing to launch", hint="ox launch --nproc 2 -- page.py")
    if plan.command[0] != "-m" and not Path(plan.command[0]).is_file():
        raise ArgumentError(f"there is no page {plan.command[0]}", hint="ox launch --nproc 2 -- page.py, or -m module")


def _check_hosts(path: Path) -> None:
    """Raise ArgumentError where mpiexec would not understand a host file: it ends in a fault of memory then."""
    found = 0
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        text = line.partition("#")[0].strip()
        found += bool(text)
        if text and not HOST.fullmatch(text):
            raise ArgumentError(
                "a line of the host file names no host", where=f"{path}:{number}", expected="host, or host:slots",
                got=repr(line[:80]),
            )  # fmt: skip
    if not found:
        raise ArgumentError(f"the host file {path} names no host", expected="lines such as node1:4")


class Launched:
    """The ranks of one attempt."""

    def __init__(self, plan: Plan, program: str, folder: Path) -> None:
        self._plan, self._folder = plan, folder
        self._ranks = plan.ranks or (None if plan.hosts else machine.threads())
        self.stopped: int | None = None  # the signal that asked for the end
        self._deadline: float | None = None
        line = [program]
        line += ["-f", str(plan.hosts)] if plan.hosts else []
        line += ["-n", str(self._ranks)] if self._ranks else []
        line += ["-prepend-rank"] if plan.label else []
        line += [sys.executable, "-IS", keeper.__file__, sys.executable, "-m", "ox.distributed.rank", *plan.command]
        # A session of its own: Ctrl-C comes to the launch alone, which passes it on once.
        self._process = subprocess.Popen(
            line, env=self._environment(), stdin=subprocess.DEVNULL, start_new_session=True,
            preexec_fn=keeper.die_with_parent, stdout=subprocess.PIPE,
        )  # fmt: skip
        self._output = threading.Thread(target=self._show, daemon=True)
        self._output.start()

    def _show(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            without_banner(output.fileno(), 1)

    def _environment(self) -> dict[str, str]:
        launch = f"{os.getpid()} {os.uname().nodename}"
        env = {**os.environ, start.FOLDER: str(self._folder), keeper.PARENT: launch, **_master(self._plan.hosts)}
        if self._plan.timeout is not None:
            env[start.TIMEOUT] = f"{self._plan.timeout:g}"
        if self._plan.hosts is None and self._ranks:
            share = str(max(1, machine.limit().threads // self._ranks))
            env = {**dict.fromkeys(THREADS, share), **env}
        return env

    def wait(self) -> int:
        """Until all ranks have ended: the exit code of the first of them that has one, or mpiexec's."""
        with _signals(self._stop):
            while self._process.poll() is None:
                self._look_after_the_dead(keeper.exists)
                if self._deadline is not None and monotonic() > self._deadline:
                    self._kill()
                sleep(0.05)
        self._output.join(AFTER)  # a process that a rank has left behind may hold it open
        if self.stopped is not None:
            return 128 + self.stopped
        self._look_after_the_dead(_alive)
        codes = [code for code in self._codes() if code]
        if codes:
            return codes[0]
        returned = int(self._process.returncode)
        if returned and not self._began():
            return 1
        if returned < 0 or 1 < returned < 32:  # a signal ended mpiexec, or a rank, as mpiexec counts it
            return 128 + abs(returned)
        return returned

    def silent(self, code: int) -> bool:
        """Whether what went wrong is in nobody's output, or only in that of mpiexec."""
        return (
            bool(code and not self._began() and self.stopped is None)
            or (code > 128 and code not in FINAL)
            or keeper.OUT_OF_ORDER in self.cause(code)
        )

    def cause(self, code: int) -> str:
        """What went wrong, in a few words."""
        words = {path.suffix[1:]: path.read_text() for path in self._ended()}
        bad = {rank: text for rank, text in words.items() if text not in (DONE, KILLED)}
        # "killed" and no more: mpiexec, or the launch, ended it because of another
        said = [f"rank {rank}: {text}" for rank, text in (bad or words).items() if text != DONE]
        if said:
            return "; ".join(said)
        if not self._began():
            ssh = f" on the hosts of {self._plan.hosts}; try ssh HOST true" if self._plan.hosts else ""
            return f"mpiexec ended with exit code {self._process.returncode}: no rank could be started{ssh}"
        return f"a rank was killed by signal {code - 128}" if 128 < code <= 128 + SIGNALS else f"exit code {code}"

    def _began(self) -> bool:
        """Whether any rank has."""
        return any(self._folder.iterdir())

    def _ended(self) -> list[Path]:
        """The last words of the ranks, the first to end first: the others may have ended because of it.

        The clock of a file system is coarse, so several may bear the same time: these go by their numbers."""
        return sorted(self._folder.glob("ended.*"), key=lambda path: (path.stat().st_mtime_ns, int(path.suffix[1:])))

    def _codes(self) -> list[int]:
        found = (CODE.match(path.read_text()) for path in self._ended())
        return [int(match[2]) + 128 * (match[1] != "exit code") for match in found if match]

    def _pids(self) -> dict[int, int]:
        """The processes of the ranks on this machine that have begun."""
        pids = {}
        for path in self._folder.glob("pid.*"):
            pid, _, host = path.read_text().partition(" ")
            if host == os.uname().nodename:
                pids[int(path.suffix[1:])] = int(pid)
        return pids

    def _look_after_the_dead(self, there: Callable[[int], bool]) -> None:
        """Leave word of a rank that died without a word, and let the others not outlive it for long.

        MPI ends them only once all have met. While a rank's keeper lives, the rank's process is there, dead or not."""
        for rank, pid in self._pids().items():
            if not (self._folder / f"ended.{rank}").exists() and not there(pid):
                start.leave(self._folder, f"ended.{rank}", KILLED)
        if self._deadline is None and any(path.read_text() != DONE for path in self._folder.glob("ended.*")):
            self._deadline = monotonic() + AFTER

    def _stop(self, number: int) -> None:
        """Pass a signal on; the second time, or when patience is over, end it all."""
        if self.stopped is not None:
            self._kill()
            return
        self.stopped, self._deadline = number, monotonic() + PATIENCE
        pids = self._pids()
        for pid in pids.values():
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        if not pids or self._plan.hosts:
            self._process.send_signal(signal.SIGINT)

    def _kill(self) -> None:
        pids = self._pids()
        for rank in pids:  # those that have not ended by themselves
            start.leave(self._folder, f"ended.{rank}", KILLED)
        for pid in [*pids.values(), self._process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _master(hosts: Path | None) -> dict[str, str]:
    """Where torchrun's scripts would look for rank 0: its machine, and a port that is free on this one.

    Ranks of ox find each other by MPI; scripts read these, and use them for stores of their own."""
    lines = [] if hosts is None else [line.partition("#")[0].strip() for line in hosts.read_text().splitlines()]
    first = next((line.split()[0].partition(":")[0] for line in lines if line), "127.0.0.1")
    with socket() as free:
        free.bind(("", 0))
        return {"MASTER_ADDR": first, "MASTER_PORT": str(free.getsockname()[1])}


def _alive(pid: int) -> bool:
    """Whether a process runs: one that is dead but not yet fetched by its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return not Path("/proc/self").exists()  # no such file system: nothing is known
    except OSError:
        return False


@contextmanager
def _signals(handle: Callable[[int], None]) -> Any:
    """Ctrl-C and SIGTERM go to `handle` meanwhile."""

    def handler(number: int, frame: FrameType | None) -> None:
        handle(number)

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
