"""`torch.multiprocessing`: the standard library's multiprocessing, and `spawn`.

Tensors pass between processes by copy; nothing shares their memory.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import sys
import traceback
from collections.abc import Callable
from multiprocessing import *  # noqa: F403
from typing import Any

from ox.errors import ArgumentError, WorkerError

GRACE = 5.0  # seconds between the request to end and the end
ProcessRaisedException = ProcessExitedException = WorkerError


def get_all_sharing_strategies() -> set[str]:
    """``file_system``: the only one. `torch.multiprocessing.get_all_sharing_strategies`."""
    return {"file_system"}


def get_sharing_strategy() -> str:
    """``file_system``. `torch.multiprocessing.get_sharing_strategy`."""
    return "file_system"


def set_sharing_strategy(new_strategy: str) -> None:
    """Nothing: tensors are copied. `torch.multiprocessing.set_sharing_strategy`."""


class SpawnContext:
    """Processes that `spawn` has started. `torch.multiprocessing.SpawnContext`.

    Attributes:
        processes: the processes.
    """

    def __init__(self, processes: list[Any], errors: list[Any]) -> None:
        self.processes, self._errors = processes, errors

    def pids(self) -> list[int | None]:
        """The numbers of the processes."""
        return [process.pid for process in self.processes]

    def join(self, timeout: float | None = None) -> bool:
        """Wait until one process fails or all are done; True if all are done. When one fails, the others are ended.

        Raises:
            WorkerError: a process raised, or ended with an exit code.
        """
        running = {process.sentinel: process for process in self.processes if process.exitcode is None}
        # without processes it would wait for ever: the last may have ended since the call before
        for sentinel in multiprocessing.connection.wait(list(running), timeout) if running else ():
            running[sentinel].join()  # its exit code may come a little later
        failed = next((i for i, process in enumerate(self.processes) if process.exitcode), None)
        if failed is not None:
            self._end()
            raise self._error(failed)
        return all(process.exitcode is not None for process in self.processes)

    def _end(self) -> None:
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        for process in self.processes:
            process.join(GRACE)
            if process.is_alive():  # it takes no SIGTERM
                process.kill()
                process.join()

    def _error(self, failed: int) -> WorkerError:
        code, errors = self.processes[failed].exitcode, self._errors[failed]
        got = errors.get() if not errors.empty() else f"exit code {code}"
        return WorkerError(f"process {failed} of ox.multiprocessing.spawn failed", got=got.strip())


def spawn(
    fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
    start_method: str = "spawn",
) -> SpawnContext | None:  # fmt: skip
    """Call ``fn(i, *args)`` in `nprocs` processes. `torch.multiprocessing.spawn`.

    Processes that train one model together are what `ox launch` starts: they find each other without an address.

    Args:
        fn: a function at the top of a module, so that other processes find it.
        args: what it takes after its number.
        nprocs: how many processes.
        join: wait for all of them.
        daemon: end them with this process.
        start_method: ``spawn``, ``fork`` or ``forkserver``.

    Returns:
        None; with ``join=False`` what waits for them.

    Raises:
        ArgumentError: `nprocs` is no positive int.
        WorkerError: a process failed; the others have been ended.
    """
    if not isinstance(nprocs, int) or nprocs < 1:
        raise ArgumentError("a positive number of processes", got=repr(nprocs))
    context: Any = multiprocessing.get_context(start_method)
    processes, errors = [], []
    for i in range(nprocs):
        errors.append(context.SimpleQueue())
        processes.append(context.Process(target=_call, args=(fn, i, args, errors[-1]), daemon=daemon))
        processes[-1].start()
    started = SpawnContext(processes, errors)
    if not join:
        return started
    while not started.join():
        pass
    return None


def _call(fn: Callable[..., Any], i: int, args: tuple[Any, ...], errors: Any) -> None:
    try:
        fn(i, *args)
    except Exception:
        errors.put(traceback.format_exc())
        sys.exit(1)
