"""``python -m ox.distributed.rank script.py ...``: one rank of `ox launch`.

Runs a script, or ``-m module``, as Python would, and records its start and its exit in the folder of the launch. So the
other ranks learn immediately of a rank that died before the rendezvous, and the launch knows every exit code. If the
process is killed, `ox.distributed.exit_recorder` writes the record.
"""

from __future__ import annotations

import atexit
import os
import runpy
import sys
from pathlib import Path

from ox.distributed import init


def main(arguments: list[str]) -> None:
    # Line buffering, also with `python -u`: mpiexec labels and interleaves each piece of output that it gets.
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]
    folder = Path(os.environ[init.FOLDER])
    here = init.launch()
    number = here.rank
    os.environ.update(init.as_torchrun(here))
    init.write_once(folder, f"pid.{number}", f"{os.getpid()} {os.uname().nodename}")
    # Registered first, so it runs last: after the final barrier of the ranks. os._exit() skips it.
    atexit.register(init.write_once, folder, f"ended.{number}", "exit code 0")
    try:
        _run(arguments)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if code:
            init.write_once(folder, f"ended.{number}", f"exit code {code}")
        raise
    except BaseException as error:
        init.write_once(folder, f"ended.{number}", f"exit code 1: {type(error).__name__}: {error}".splitlines()[0])
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
