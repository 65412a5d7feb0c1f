"""The parent process of one rank of `ox launch`. It records how the rank ended.

A rank that is killed, or calls `os._exit`, cannot record its exit itself, and mpiexec does not say which rank failed.
So mpiexec starts this recorder, which starts the rank, writes the exit code to a file before mpiexec ends the other
ranks, and ends with the same code. It also kills the rank if the launch has ended. It is started by its path and
imports nothing of ox.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

FOLDER, PARENT = "OX_LAUNCH_FOLDER", "OX_LAUNCH_PARENT"  # the folder for the records; "PID HOST" of the launch
OS_EXIT = "ended by os._exit(0), without the end of the program"
CHECK_INTERVAL = 1.0  # seconds between checks whether the launch still runs
IGNORED_SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
)  # the rank handles them
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux


def die_with_parent() -> None:
    """Asks Linux to kill this process when its parent dies. Does nothing on other systems."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)


def main(command: list[str]) -> None:
    folder, number = Path(os.environ[FOLDER]), rank()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    recorder = os.getpid()
    pid = os.fork()
    if pid == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        die_with_parent()
        if os.getppid() != recorder:
            os._exit(1)
        os.execv(command[0], command)
    for each in IGNORED_SIGNALS:
        signal.signal(each, signal.SIG_IGN)  # mpiexec and terminals send them to the whole group, the rank included
    code = wait(pid)
    started, record = folder / f"rank.{number}", folder / f"ended.{number}"
    if code == 0 and started.exists() and not record.exists():
        write_once(record, f"exit code 1: {OS_EXIT}")
        sys.exit(1)
    write_once(record, f"killed by signal {-code}" if code < 0 else f"exit code {code}")
    if code < 0:
        end_by_signal(-code)
    sys.exit(code)


def rank() -> int:
    names = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
    return int(next(os.environ[name] for name in names if name in os.environ))


def wait(pid: int) -> int:
    """Waits for the process and returns its exit code, or the negative number of a signal. Kills it if the launch has
    ended. The process stays a zombie until this one ends, so that its PID is not reused before the record is
    written."""
    launch, _, host = os.environ[PARENT].partition(" ")
    here = host == os.uname().nodename
    while True:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is not None:
            return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        if here and not exists(int(launch)):
            os.kill(pid, signal.SIGKILL)
        signal.sigtimedwait([signal.SIGCHLD], CHECK_INTERVAL)


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def write_once(path: Path, text: str) -> None:
    """Writes a file atomically, unless it exists. Like `init.write_once`, which this file does not import."""
    with suppress(OSError):
        if not path.exists():
            unfinished = path.with_name(f".{path.name}.{os.getpid()}")
            unfinished.write_text(text)
            unfinished.rename(path)


def end_by_signal(number: int) -> None:
    """Ends this process by the signal that ended the rank, without a second core file."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    main(sys.argv[1:])
