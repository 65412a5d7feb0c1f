"""``python -m ox.distributed.rank script.py ...``: one rank of `ox launch`.

Runs a script, or ``-m module``, as Python would, and tells the launch of an error when it is raised: the other ranks
may fail because of it.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
from contextlib import suppress
from pathlib import Path

from ox.distributed import init
from ox.distributed.signals import STOPPED
from ox.errors import OxError

PIPE = "OX_LAUNCH_PIPE"  # "descriptor PID" of the launch: where it reads notes, and its process
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux


def die_with_parent(parent: int) -> None:
    """Asks Linux to kill this process when its parent dies, and ends it if that has happened. Does nothing on other
    systems."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def main(arguments: list[str]) -> None:
    # Line buffering, also with `python -u`: ranks write to the same terminal.
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]
    descriptor, parent = map(int, os.environ.pop(PIPE).split())
    die_with_parent(parent)
    os.set_inheritable(descriptor, False)
    init.pipe.append(descriptor)
    try:
        try:
            _run(arguments)
        except OxError as error:
            if error.exit_code not in STOPPED:
                raise
            if os.environ.get("RANK") == "0":  # the others say the same
                print(f"ox: {error.what}", file=sys.stderr, flush=True)
            raise SystemExit(error.exit_code) from None
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if code:
            init.tell_launcher(ended=code, text=f"exit code {code}")
        raise
    except BaseException as error:
        text = f"exit code 1: {type(error).__name__}: {error}".splitlines()[0]
        init.tell_launcher(ended=1, text=text[:1000])
        raise


def _run(arguments: list[str]) -> None:
    if arguments[0] == "-m":
        sys.argv[:] = arguments[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = arguments
        sys.path[0] = str(Path(arguments[0]).resolve().parent)
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
