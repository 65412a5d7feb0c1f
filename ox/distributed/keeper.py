"""Stands between mpiexec and one rank of `ox launch`, and writes down how the rank ended.

A process that is killed, or leaves by `os._exit`, says nothing itself, and mpiexec does not say which rank it was.
The keeper is the rank's parent: it knows, writes it before mpiexec learns of it and ends the others, and ends the same
way. It also ends the rank when the launch itself is gone. Started by its path, it imports nothing of ox.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

FOLDER, PARENT = "OX_LAUNCH_FOLDER", "OX_LAUNCH_PARENT"  # where word is left; "PID HOST" of the launch
OUT_OF_ORDER = "ended by os._exit(0), without the end of the program"
GONE = 1.0  # seconds between looks at the launch
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)  # for the rank alone
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux


def die_with_parent() -> None:
    """Let the system kill this process when its parent dies. Does nothing where the system cannot."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)


def main(command: list[str]) -> None:
    folder, number = Path(os.environ[FOLDER]), rank()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        die_with_parent()
        if os.getppid() != keeper:
            os._exit(1)
        os.execv(command[0], command)
    for each in PASSED_ON:
        signal.signal(each, signal.SIG_IGN)  # mpiexec and terminals send them to the whole group, the rank included
    code = wait(pid)
    met, word = folder / f"rank.{number}", folder / f"ended.{number}"
    if code == 0 and met.exists() and not word.exists():
        leave(word, f"exit code 1: {OUT_OF_ORDER}")
        sys.exit(1)
    leave(word, f"killed by signal {-code}" if code < 0 else f"exit code {code}")
    if code < 0:
        die(-code)
    sys.exit(code)


def rank() -> int:
    names = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
    return int(next(os.environ[name] for name in names if name in os.environ))


def wait(pid: int) -> int:
    """Until the process has ended: its exit code, or the negative number of a signal. It is killed when the launch is
    gone. It stays a zombie until this process ends, so that nobody speaks for it before."""
    launch, _, host = os.environ[PARENT].partition(" ")
    here = host == os.uname().nodename
    while True:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is not None:
            return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        if here and not exists(int(launch)):
            os.kill(pid, signal.SIGKILL)
        signal.sigtimedwait([signal.SIGCHLD], GONE)


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def leave(path: Path, text: str) -> None:
    """As `start.leave`: whole or not at all, and the first word counts."""
    with suppress(OSError):
        if not path.exists():
            unfinished = path.with_name(f".{path.name}.{os.getpid()}")
            unfinished.write_text(text)
            unfinished.rename(path)


def die(number: int) -> None:
    """End by a signal, as the rank did, without a second core file."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    main(sys.argv[1:])
