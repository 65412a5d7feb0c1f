"""Starts the ranks of a program with mpiexec, monitors them and restarts them: `ox launch`."""

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

from ox import temporary_files
from ox.devices import machine
from ox.distributed import exit_recorder, init
from ox.distributed.mpiexec_output import copy_without_banner
from ox.errors import ArgumentError, DeviceError

FINAL = (0, 2, 130, 143)  # exit codes without a restart: success, wrong usage, Ctrl-C, SIGTERM
STOP_TIMEOUT = 60.0  # seconds between the signal to stop and SIGKILL
FAILURE_TIMEOUT = 5.0  # seconds from the death of a rank to SIGKILL of the others
DONE, KILLED = "exit code 0", "killed"
CODE = re.compile(r"(exit code|killed by signal) (\d+)")
HOST = re.compile(r"[A-Za-z0-9_.-]+(:[1-9]\d*)?(\s+\w+=\S+)*")
SIGNALS = 64  # the largest number of a signal
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Plan:
    """The settings of a launch.

    Args:
        command: a script and its arguments, or ``-m``, a module and its arguments.
        ranks: how many processes; default: the slots of the host file, or the cores of this machine.
        hosts: a file of ``host:slots`` lines, for several machines that share the working folder.
        restarts: how often all ranks are restarted after a failure.
        timeout: seconds that ranks wait for each other; None for the defaults.
        label: print the rank at the beginning of each line of output.
    """

    command: Sequence[str]
    ranks: int | None = None
    hosts: Path | None = None
    restarts: int = 0
    timeout: float | None = None
    label: bool = False


def mpiexec() -> str:
    """The `mpiexec` of the MPI that mpi4py uses. Raises DeviceError if mpi4py or MPI is not installed."""
    from ox.distributed import mpi

    mpi.library()
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        raise DeviceError("there is no mpiexec, which starts the ranks", hint=mpi.INSTALL)
    return found


def run(plan: Plan, report: Callable[[str], None]) -> int:
    """Starts the ranks and waits for them; `report` prints a line for the user. Returns the exit code.

    Raises:
        DeviceError: mpi4py or mpiexec is missing. ArgumentError: no such script or host file, or too few ranks.
    """
    program = mpiexec()
    _check(plan)
    cores = machine.limit().threads
    if plan.hosts is None and (plan.ranks or 0) > cores:
        report(f"{plan.ranks} processes on {cores} core{'s' * (cores != 1)}: they share the cores")
    with temporary_files.folder(".ox-launch-", Path.cwd() if plan.hosts else None) as folder:
        for attempt in range(plan.restarts + 1):
            here = folder / str(attempt)
            here.mkdir()
            launched = LaunchAttempt(plan, program, here)
            code = launched.wait()
            if code in FINAL or launched.stopped or attempt == plan.restarts:
                if launched.unreported(code):
                    report(launched.cause(code))
                return code
            report(f"{launched.cause(code)} · restarting all ranks ({attempt + 1} of {plan.restarts})")
    return code


def check_connection(program: str) -> str:
    """Starts two processes with `program`; returns why they cannot connect, or None."""
    code = (
        "import ox, ox.distributed as d; d.init_process_group(timeout=30); x = ox.ones(1); d.all_reduce(x); "
        "print(int(x.item())); d.destroy_process_group()"
    )
    line = [program, "-n", "2", sys.executable, "-c", code]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"two processes cannot connect: {type(error).__name__}"
    if "".join(done.stdout.split()) == "22":  # mpiexec may interleave the lines of several ranks
        return "two processes connected"
    said = (done.stderr or done.stdout).strip().splitlines()
    return f"two processes cannot connect: {said[-1] if said else f'exit code {done.returncode}'}"


def _check(plan: Plan) -> None:
    if plan.ranks is not None and plan.ranks < 1:
        raise ArgumentError("at least one process is needed", got=str(plan.ranks))
    if plan.hosts is not None and not plan.hosts.is_file():
        raise ArgumentError(f"there is no host file {plan.hosts}", expected="lines such as node1:4")
    if plan.hosts is not None:
        _check_hosts(plan.hosts)
    if not plan.command:
        raise ArgumentError("there is nothing to launch", hint="ox launch --nproc 2 -- train.py")
    if plan.command[0] != "-m" and not Path(plan.command[0]).is_file():
        raise ArgumentError(
            f"there is no script {plan.command[0]}", hint="ox launch --nproc 2 -- train.py, or -m module"
        )


def _check_hosts(path: Path) -> None:
    """Raises ArgumentError for an invalid host file, with which mpiexec would crash."""
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


class LaunchAttempt:
    """The ranks of one attempt."""

    def __init__(self, plan: Plan, program: str, folder: Path) -> None:
        self._plan, self._folder = plan, folder
        self._ranks = plan.ranks or (None if plan.hosts else machine.threads())
        self.stopped: int | None = None  # the signal that stopped the launch
        self._deadline: float | None = None
        line = [program]
        line += ["-f", str(plan.hosts)] if plan.hosts else []
        line += ["-n", str(self._ranks)] if self._ranks else []
        line += ["-prepend-rank"] if plan.label else []
        line += [
            sys.executable,
            "-IS",
            exit_recorder.__file__,
            sys.executable,
            "-m",
            "ox.distributed.rank",
            *plan.command,
        ]
        # Its own session: Ctrl-C reaches only the launch, which forwards it once.
        self._process = subprocess.Popen(
            line, env=self._environment(), stdin=subprocess.DEVNULL, start_new_session=True,
            preexec_fn=exit_recorder.die_with_parent, stdout=subprocess.PIPE,
        )  # fmt: skip
        self._output = threading.Thread(target=self._show, daemon=True)
        self._output.start()

    def _show(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            copy_without_banner(output.fileno(), 1)

    def _environment(self) -> dict[str, str]:
        launch = f"{os.getpid()} {os.uname().nodename}"
        env = {**os.environ, init.FOLDER: str(self._folder), exit_recorder.PARENT: launch, **_master(self._plan.hosts)}
        if self._plan.timeout is not None:
            env[init.TIMEOUT] = f"{self._plan.timeout:g}"
        if self._plan.hosts is None and self._ranks:
            share = str(max(1, machine.limit().threads // self._ranks))
            env = {**dict.fromkeys(THREADS, share), **env}
        return env

    def wait(self) -> int:
        """Waits for all ranks. Returns the exit code of the rank that failed first, or that of mpiexec."""
        with _handle_signals(self._stop):
            while self._process.poll() is None:
                self._record_deaths(exit_recorder.exists)
                if self._deadline is not None and monotonic() > self._deadline:
                    self._kill()
                sleep(0.05)
        self._output.join(FAILURE_TIMEOUT)  # a child process of a rank may keep it open
        if self.stopped is not None:
            return 128 + self.stopped
        self._record_deaths(_is_running)
        codes = [code for code in self._codes() if code]
        if codes:
            return codes[0]
        returned = int(self._process.returncode)
        if returned and not self._any_started():
            return 1
        if returned < 0 or 1 < returned < 32:  # a signal ended mpiexec or a rank
            return 128 + abs(returned)
        return returned

    def unreported(self, code: int) -> bool:
        """Whether no rank has printed the cause of the failure, so that the launch must."""
        return (
            bool(code and not self._any_started() and self.stopped is None)
            or (code > 128 and code not in FINAL)
            or exit_recorder.OS_EXIT in self.cause(code)
        )

    def cause(self, code: int) -> str:
        """The cause of the failure, in one line."""
        words = {path.suffix[1:]: path.read_text() for path in self._exit_records()}
        bad = {rank: text for rank, text in words.items() if text not in (DONE, KILLED)}
        # "killed" without a signal: ended because another rank failed
        said = [f"rank {rank}: {text}" for rank, text in (bad or words).items() if text != DONE]
        if said:
            return "; ".join(said)
        if not self._any_started():
            ssh = f" on the hosts of {self._plan.hosts}; try ssh HOST true" if self._plan.hosts else ""
            return f"mpiexec ended with exit code {self._process.returncode}: no rank could be started{ssh}"
        return f"a rank was killed by signal {code - 128}" if 128 < code <= 128 + SIGNALS else f"exit code {code}"

    def _any_started(self) -> bool:
        """Whether any rank has started."""
        return any(self._folder.iterdir())

    def _exit_records(self) -> list[Path]:
        """The files in which the ranks recorded their exit, the earliest first: the others may have ended because of
        it.

        Files with the same modification time are sorted by rank, since the clock of a file system is coarse."""
        return sorted(self._folder.glob("ended.*"), key=lambda path: (path.stat().st_mtime_ns, int(path.suffix[1:])))

    def _codes(self) -> list[int]:
        found = (CODE.match(path.read_text()) for path in self._exit_records())
        return [int(match[2]) + 128 * (match[1] != "exit code") for match in found if match]

    def _pids(self) -> dict[int, int]:
        """The PIDs of the ranks that have started on this machine."""
        pids = {}
        for path in self._folder.glob("pid.*"):
            pid, _, host = path.read_text().partition(" ")
            if host == os.uname().nodename:
                pids[int(path.suffix[1:])] = int(pid)
        return pids

    def _record_deaths(self, there: Callable[[int], bool]) -> None:
        """Records ranks that died without a record, and sets the deadline for the others.

        MPI ends the others only after its initialization. While the exit recorder of a rank runs, the process of the
        rank exists, at least as a zombie."""
        for rank, pid in self._pids().items():
            if not (self._folder / f"ended.{rank}").exists() and not there(pid):
                init.write_once(self._folder, f"ended.{rank}", KILLED)
        if self._deadline is None and any(path.read_text() != DONE for path in self._folder.glob("ended.*")):
            self._deadline = monotonic() + FAILURE_TIMEOUT

    def _stop(self, number: int) -> None:
        """Forwards a signal to the ranks; the second signal kills them."""
        if self.stopped is not None:
            self._kill()
            return
        self.stopped, self._deadline = number, monotonic() + STOP_TIMEOUT
        pids = self._pids()
        for pid in pids.values():
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        if not pids or self._plan.hosts:
            self._process.send_signal(signal.SIGINT)

    def _kill(self) -> None:
        pids = self._pids()
        for rank in pids:  # those without a record of their own
            init.write_once(self._folder, f"ended.{rank}", KILLED)
        for pid in [*pids.values(), self._process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _master(hosts: Path | None) -> dict[str, str]:
    """MASTER_ADDR and MASTER_PORT, as torchrun sets them: the machine of rank 0 and a free port.

    The ranks of ox find each other with MPI; scripts may use these variables for their own connections."""
    lines = [] if hosts is None else [line.partition("#")[0].strip() for line in hosts.read_text().splitlines()]
    first = next((line.split()[0].partition(":")[0] for line in lines if line), "127.0.0.1")
    with socket() as free:
        free.bind(("", 0))
        return {"MASTER_ADDR": first, "MASTER_PORT": str(free.getsockname()[1])}


def _is_running(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return not Path("/proc/self").exists()  # no /proc on this system: assume that it runs
    except OSError:
        return False


@contextmanager
def _handle_signals(handle: Callable[[int], None]) -> Any:
    """A context in which `handle` is called for Ctrl-C and SIGTERM."""

    def handler(number: int, frame: FrameType | None) -> None:
        handle(number)

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
