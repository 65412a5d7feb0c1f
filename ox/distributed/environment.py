"""The launcher of this process (ox launch, mpiexec, srun, torchrun), its rank and the number of ranks, from the
environment variables."""

from __future__ import annotations

import os
from dataclasses import dataclass

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
    numbers = {name: int(value) for name, value in os.environ.items() if name in _NUMBERS and value.isdigit()}
    launchers = (("ox", *_LAUNCHERS[-2][1:]),) if ATTEMPT in os.environ else _LAUNCHERS
    for by, rank, size, local_rank, local_size in launchers:
        if rank in numbers and size in numbers:
            local = numbers.get(local_rank, numbers[rank]), numbers.get(local_size, numbers[size])
            return Launch(by, numbers[rank], numbers[size], *local)
    return Launch("nobody")


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
