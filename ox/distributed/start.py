"""How this process was started, as which rank of how many, and the meeting of the ranks before their library starts.

`MPI_Init` waits for all ranks without a limit and cannot be interrupted. So the ranks of one machine, or with
`ox launch` all of them, first leave a mark in a folder, and begin when all marks are there.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from ox.errors import ArgumentError, DeviceError, DistributedError
from ox.where import users_line

FOLDER = "OX_LAUNCH_FOLDER"  # where `ox launch` lets the ranks meet
TIMEOUT = "OX_LAUNCH_TIMEOUT"  # seconds, of `ox launch --timeout`
MEETING = 120.0  # seconds in which all ranks must have come


@dataclass(frozen=True)
class Launch:
    """What the environment says: who started this process, and as which of how many ranks."""

    by: str  # mpi, torchrun, srun, or nobody
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1


def launch() -> Launch:
    """Who started this process."""
    numbers = {name: int(value) for name, value in os.environ.items() if name in _NUMBERS and value.isdigit()}
    for by, rank, size, local_rank, local_size in _LAUNCHERS:
        if rank in numbers and size in numbers:
            local = numbers.get(local_rank, numbers[rank]), numbers.get(local_size, numbers[size])
            return Launch(by, numbers[rank], numbers[size], *local)
    return Launch("nobody")


# the first that is there counts: torchrun's variables may be set by hand around mpiexec
_LAUNCHERS = (
    ("mpi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("mpi", "PMIX_RANK", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
    ("openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
)  # fmt: skip
_NUMBERS = {name for _, *names in _LAUNCHERS for name in names}


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


def is_nccl_available() -> bool:
    """Whether CuPy, a device and NCCL are there. `torch.distributed.is_nccl_available`."""
    from ox.distributed import nccl

    return nccl.available()


def default_timeout(otherwise: timedelta) -> float:
    """Seconds: what `ox launch --timeout` says, or `otherwise`."""
    return float(os.environ.get(TIMEOUT) or otherwise.total_seconds())


def engine(backend: str | None, timeout: float | None, device: Any) -> Any:
    """The engine of all ranks of the program."""
    here = launch()
    name = _backend(backend, here)
    if name == "nccl":
        from ox.distributed import nccl

        return nccl.start(here, timeout or MEETING, device)
    from ox.distributed import mpi

    if here.by in ("torchrun", "srun") and here.size > 1:
        raise _not_by_mpi(here)
    mpi.library()  # a missing mpi4py is said before anybody waits
    if here.by == "mpi" and here.size > 1 and not mpi.started():
        meet(here, timeout or default_timeout(timedelta(seconds=MEETING)))
    made = mpi.start()
    if made.size != here.size and here.by != "nobody":
        raise DistributedError(
            f"the launcher started {here.size} processes, but this MPI sees {made.size}",
            hint=f"the mpiexec of the MPI that mpi4py uses: {command(here.size)}",
        )
    return made


def _backend(backend: str | None, here: Launch) -> str:
    wanted = (backend or "").lower()
    if wanted in ("mpi", "gloo", "nccl"):
        return "mpi" if wanted == "gloo" else wanted
    if backend is None or wanted == "cpu:gloo,cuda:nccl":
        from ox.devices import cuda

        return "nccl" if here.size > 1 and cuda.available() else "mpi"
    raise ArgumentError(f"no backend {backend!r}", where=users_line(3), expected="mpi or nccl")


def command(size: int) -> str:
    """The line that starts this program on `size` ranks."""
    mpiexec = Path(sys.executable).parent / "mpiexec"
    parts = sys.orig_argv[1:] or ["script.py"]
    return f"{mpiexec if mpiexec.exists() else 'mpiexec'} -n {size} {Path(sys.executable).name} {' '.join(parts)}"


def _not_by_mpi(here: Launch) -> DistributedError:
    if here.by == "srun":
        return DistributedError(
            f"srun started {here.size} processes, but gave them no way to find each other",
            hint="srun --mpi=pmi2 ... (or --mpi=pmix; srun --mpi=list shows what there is)",
        )
    return DistributedError(
        f"WORLD_SIZE={here.size} is torchrun's, which starts ranks for NCCL on GPUs; on CPUs MPI starts them",
        where=users_line(3) or None,
        hint=f"{command(here.size)}\nor: ox launch --nproc {here.size} -- {' '.join(sys.orig_argv[1:])}",
    )


# -- the meeting -------------------------------------------------------------------------------------------------


def meet(here: Launch, limit: float) -> None:
    """Wait until all ranks, or without `ox launch` those of this machine, have come.

    Raises:
        DistributedError: ranks did not come within `limit` seconds, or ended before; it names them.
    """
    given = os.environ.get(FOLDER)
    folder, size, rank = (Path(given), here.size, here.rank) if given else (_own(), here.local_size, here.local_rank)
    if folder is None:
        return
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return  # somebody else's: the meeting is a courtesy, and MPI does without it
        (folder / f"rank.{rank}").touch()
    except OSError:
        return
    until = monotonic() + limit
    while missing := [other for other in range(size) if not (folder / f"rank.{other}").exists()]:
        ended = [other for other in missing if (folder / f"ended.{other}").exists()]
        if ended or monotonic() > until:
            raise _missing(here, ended or missing, folder, limit, ended=bool(ended), everywhere=bool(given))
        sleep(0.01)


def _missing(
    here: Launch, ranks: list[int], folder: Path, limit: float, ended: bool, everywhere: bool
) -> DistributedError:
    if not everywhere:  # numbers of this machine, which ranks in the program follow if they are dealt out in blocks
        ranks = [here.rank - here.local_rank + rank for rank in ranks]
    names = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
    if ended:
        codes = {f"rank {rank}": (folder / f"ended.{rank}").read_text().strip() for rank in ranks}
        return DistributedError(
            f"{names} ended before init_process_group", where=f"rank {here.rank}", extra=codes,
            hint="the output of the rank that ended says why",
        )  # fmt: skip
    return DistributedError(
        f"{names} did not come to init_process_group within {limit:g} s", where=f"rank {here.rank}",
        expected=f"{here.size} ranks", hint="init_process_group(timeout=...), or ox launch --timeout SECONDS",
    )  # fmt: skip


def _own() -> Path | None:
    """A folder that the ranks of one mpiexec on this machine find without being told: by the process above them."""
    try:
        parent = os.getppid()
        fields = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()
        name = Path(f"/proc/{parent}/comm").read_text().strip()
    except OSError:
        return None
    if "pmi_proxy" not in name:
        return None  # a shell between mpiexec and this process: there is no common name
    return Path(tempfile.gettempdir()) / f"ox-{os.getuid()}-{parent}-{fields[19]}"
