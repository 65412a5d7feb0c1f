"""``python -m ox.distributed.rank page.py ...``: one rank of `ox launch`.

Runs a page, or ``-m module``, as Python would, and leaves word in the launch's folder: that it began, and how it ended.
So those who wait for a rank that died before it met them learn of it at once, and the launch knows every exit code.
Where it cannot speak itself, `ox.distributed.keeper` does.
"""

from __future__ import annotations

import atexit
import os
import runpy
import sys
from pathlib import Path

from ox.distributed import start


def main(arguments: list[str]) -> None:
    # Whole lines, also where Python was told not to buffer: mpiexec labels and mixes what it gets piece by piece.
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]
    folder = Path(os.environ[start.FOLDER])
    here = start.launch()
    number = here.rank
    os.environ.update(start.as_torchrun(here))
    start.leave(folder, f"pid.{number}", f"{os.getpid()} {os.uname().nodename}")
    # What is registered first runs last: after the ranks have said goodbye to each other. os._exit() skips it.
    atexit.register(start.leave, folder, f"ended.{number}", "exit code 0")
    try:
        _run(arguments)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if code:
            start.leave(folder, f"ended.{number}", f"exit code {code}")
        raise
    except BaseException as error:
        start.leave(folder, f"ended.{number}", f"exit code 1: {type(error).__name__}: {error}".splitlines()[0])
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
