"""Starts the backend of the ranks of a program, and tells `ox launch` about this rank.

`MPI_Init` waits for all ranks without a limit and cannot be interrupted. So the ranks first meet at a store, with a
timeout (`ox.distributed.rendezvous`).
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from ox.clock import SYSTEM
from ox.distributed.environment import MEETING, Launch, check_heartbeat, check_system, check_variables, launch
from ox.errors import ArgumentError, DeviceError, DistributedError

RUN = "OX_LAUNCH_RUN"  # the run that an earlier attempt created
TIMEOUT = "OX_LAUNCH_TIMEOUT"  # seconds, of `ox launch --timeout`
START_TIMEOUT = 120.0  # seconds in which all ranks must have started

pipe: list[int] = []  # the file descriptor at which `ox launch` reads notes of this rank, if it started it


def is_available() -> bool:
    """Whether process groups can be made here: True. `torch.distributed.is_available`."""
    return True


def is_mpi_available() -> bool:
    """Whether mpi4py and an MPI are installed. `torch.distributed.is_mpi_available`."""
    from ox.distributed import mpi

    try:
        mpi.library()
    except DeviceError:
        return False
    return True


def is_gloo_available() -> bool:
    """False: processes on CPUs speak MPI. `torch.distributed.is_gloo_available`."""
    return False


def is_torchelastic_launched() -> bool:
    """False: `ox launch` starts processes. `torch.distributed.is_torchelastic_launched`."""
    return False


def is_nccl_available() -> bool:
    """Whether CuPy, a device and NCCL are there. `torch.distributed.is_nccl_available`."""
    from ox.distributed import nccl

    return nccl.available()


def default_timeout(otherwise: timedelta) -> float:
    """The value of `ox launch --timeout`, in seconds, or `otherwise`."""
    return float(os.environ.get(TIMEOUT) or otherwise.total_seconds())


def create_backend(name: str | None, timeout: float | None, device: Any, rank: int = -1, world_size: int = -1) -> Any:
    """The backend of all ranks of the program. `rank` and `world_size` count where no launcher tells them.

    Raises:
        ArgumentError: see `check_variables` and `check_heartbeat`; an unknown backend.
        DistributedError: ranks do not meet (`rendezvous.met`). DeviceError: MPI or NCCL is missing.
    """
    here = launch()
    if here.by == "nobody" and rank >= 0 and world_size > 0:
        here = Launch("torchrun", rank, world_size, rank, world_size)
    else:
        check_variables(here)
    name = _backend_name(name, here)
    if name == "nccl":
        from ox.distributed import nccl

        try:
            nccl.library()
        except DeviceError as error:
            raise DeviceError(
                'the backend "nccl" is for GPUs', got=error.what,
                hint=f'on CPUs init_process_group("gloo"), or no backend; for GPUs: {error.hint}',
            ) from error  # fmt: skip
        return nccl.start(here, timeout or START_TIMEOUT, device)
    from ox.distributed import mpi

    mpi.library()  # raises the error of a missing mpi4py before any rank waits
    backend = start_mpi(here, timeout or default_timeout(timedelta(seconds=START_TIMEOUT)))
    if backend.size != here.size and here.by != "nobody":
        raise DistributedError(
            f"the launcher started {here.size} processes, but this MPI sees {backend.size}",
            hint=f"the mpiexec of the MPI that mpi4py uses: {command(here.size)}",
        )
    return backend


def start_mpi(here: Launch, limit: float) -> Any:
    """Waits for all ranks for at most `limit` seconds, unless MPI has started already, and starts it."""
    from ox.distributed import mpi

    if here.size == 1 or mpi.started() or here.by not in MEETING:
        return mpi.start()
    from ox.distributed import rendezvous

    check_system()
    check_heartbeat()
    if here.by != "mpi":
        mpi.check_pmi()
    _met.append(True)
    try:
        with rendezvous.met(here, limit, SYSTEM.now() - _attempt_began[0], SYSTEM):
            return mpi.start()
    finally:
        _attempt_began[0] = SYSTEM.now()


def known_backend(backend: str) -> str | None:
    """ "mpi" or "nccl" for a name of PyTorch's; None for another."""
    return {"gloo": "mpi", "mpi": "mpi", "nccl": "nccl"}.get(backend.lower())


def _backend_name(backend: str | None, here: Launch) -> str:
    wanted = (backend or "").lower()
    if (known := known_backend(wanted)) is not None:
        return known
    if backend is None or wanted == "cpu:gloo,cuda:nccl":
        from ox.devices import cuda

        return "nccl" if here.size > 1 and cuda.available() else "mpi"
    raise ArgumentError(f"no backend {backend!r}", expected="mpi or nccl")


def command(size: int) -> str:
    """The command that starts this program on `size` ranks."""
    mpiexec = Path(sys.executable).parent / "mpiexec"
    parts = sys.orig_argv[1:] or ["script.py"]
    return f"{mpiexec if mpiexec.exists() else 'mpiexec'} -n {size} {Path(sys.executable).name} {' '.join(parts)}"


def record_early_exit() -> None:
    """Registers a message to the other ranks of mpiexec for the case that this process ends before the meeting. The
    import of ox.distributed calls it. `ox launch` sees the end of its ranks itself."""
    here = launch()
    if here.by == "mpi" and here.size > 1:
        atexit.register(_tell_early_exit, here)


def _tell_early_exit(here: Launch) -> None:
    if not _met:
        from ox.distributed import rendezvous

        rendezvous.tell_early_exit(here, SYSTEM)


_met: list[bool] = []  # whether this process has gone to a meeting


def _process_age() -> float:
    """Seconds since this process started, as far as the system tells."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, AttributeError):
        return 0.0


# when this process started, or its last attempt to meet the others ended
_attempt_began = [SYSTEM.now() - _process_age()]


# -- notes for `ox launch` ----------------------------------------------------------------------------------------


def tell_launcher(**note: Any) -> None:
    """Sends a note to the `ox launch` that started this rank; does nothing without one."""
    for number in pipe:
        with suppress(OSError):  # the launch has ended
            os.write(number, json.dumps(note | {"time": SYSTEM.now()}).encode() + b"\n")


def save_run(run: str) -> None:
    """Tells the name of the run, so that ranks that `ox launch` restarts resume it."""
    tell_launcher(run=run)


def saved_run() -> str | None:
    """The run that an earlier attempt of this launch created; None if there is none."""
    return os.environ.get(RUN)
