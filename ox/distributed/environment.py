"""The launcher of this process (ox launch, mpiexec, srun, torchrun), its rank and the number of ranks, from the
environment variables."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from ox.distributed import frames
from ox.errors import ArgumentError, DeviceError

ATTEMPT = "OX_LAUNCH_ATTEMPT"  # the number of the attempt of `ox launch` to run all ranks
MEETING = ("ox", "mpi", "torchrun", "srun")  # launchers whose ranks meet at a store


@dataclass(frozen=True)
class Launch:
    """The launcher of this process, its rank and the number of ranks, from the environment variables."""

    by: str  # ox, mpi, torchrun, srun, openmpi, or nobody
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1


def is_rank() -> bool:
    """Whether a launcher started this process as one of several. The batch script of a Slurm job is none of them."""
    here = launch()
    step = here.by != "srun" or "SLURM_STEP_NODELIST" in os.environ
    return here.size > 1 and here.by in MEETING and step


def launch() -> Launch:
    """The launcher of this process."""
    texts = {name: os.environ.get(name, "") for name in _NUMBERS}
    numbers = {name: int(text) for name, text in texts.items() if text.isascii() and text.isdigit()}
    launchers = (("ox", *_LAUNCHERS[-2][1:]),) if ATTEMPT in os.environ else _LAUNCHERS
    for by, rank, size, local_rank, local_size in launchers:
        if rank in numbers and size in numbers:
            local = numbers.get(local_rank, numbers[rank]), numbers.get(local_size, numbers[size])
            return Launch(by, numbers[rank], numbers[size], *local)
    return Launch("nobody")


def check_system() -> None:
    """Raises DeviceError where ranks cannot be started, watched and ended."""
    try:
        import fcntl  # noqa: F401  # which tells of news while MPI starts
    except ImportError:
        found = False
    else:
        found = hasattr(os, "posix_spawn")
    if not found:
        raise DeviceError("several processes that train together need Linux or macOS", got=sys.platform,
                          hint="one process: without --nproc and without a launcher")  # fmt: skip


def check_variables(here: Launch) -> None:
    """Refuses variables of `env://` that name no rank: the process would train alone, and its peers would wait for it.
    Without MASTER_ADDR they may be there for other reasons.

    Raises:
        ArgumentError: RANK or WORLD_SIZE is missing or no number, or does not fit the other.
    """
    env = os.environ
    alone = not env.get("MASTER_ADDR") or ("RANK" not in env and env.get("WORLD_SIZE", "1") == "1")
    # A rank that is too large for several is refused at the store, where the others learn of it.
    fits = here.by != "nobody" and (here.by != "torchrun" or here.size > 1 or here.rank < here.size)
    if alone or fits:
        return
    raise ArgumentError(
        "RANK and WORLD_SIZE name no rank", where="", expected="RANK from 0 to WORLD_SIZE - 1, on every rank",
        got=", ".join(f"{name}={env[name]!r}" if name in env else f"no {name}" for name in ("RANK", "WORLD_SIZE")),
        hint="set both, or start the ranks with ox launch; without MASTER_ADDR this process is alone",
    )  # fmt: skip


def check_heartbeat() -> None:
    """Raises ArgumentError if the time limit of the heartbeat is none."""
    try:
        frames.heartbeat_timeout()
    except ValueError:
        raise ArgumentError(
            f"{frames.HEARTBEAT} (--heartbeat-timeout) is a time limit", where="",
            expected=f"0 (off), or 1 to {frames.LONGEST:,.0f} seconds", got=os.environ[frames.HEARTBEAT],
        ) from None  # fmt: skip


# the first match counts: scripts may set torchrun's variables under mpiexec
_LAUNCHERS = (
    ("mpi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("mpi", "PMIX_RANK", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
    ("openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
)  # fmt: skip
_NUMBERS = {name for _, *names in _LAUNCHERS for name in names}
