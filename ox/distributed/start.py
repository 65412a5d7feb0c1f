"""How this process was started, as which rank of how many, and the meeting of the ranks before their library starts.

`MPI_Init` waits for all ranks without a limit and cannot be interrupted. So the ranks of one machine, or with
`ox launch` all of them, first leave a mark in a folder, and begin when all marks are there.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import monotonic, sleep, time
from typing import Any

from ox.errors import ArgumentError, DeviceError, DistributedError
from ox.temporary import ABANDONED
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


def as_torchrun(here: Launch) -> dict[str, str]:
    """The variables by which scripts written for torchrun know who they are."""
    return {
        "RANK": str(here.rank),
        "WORLD_SIZE": str(here.size),
        "LOCAL_RANK": str(here.local_rank),
        "LOCAL_WORLD_SIZE": str(here.local_size),
    }


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
    """Seconds: what `ox launch --timeout` says, or `otherwise`."""
    return float(os.environ.get(TIMEOUT) or otherwise.total_seconds())


def engine(backend: str | None, timeout: float | None, device: Any) -> Any:
    """The engine of all ranks of the program."""
    here = launch()
    name = _backend(backend, here)
    if name == "nccl":
        from ox.distributed import nccl

        try:
            nccl.library()
        except DeviceError as error:
            raise DeviceError(
                'the backend "nccl" is for GPUs', where=users_line(2) or None, got=error.what,
                hint=f'on CPUs init_process_group("gloo"), or no backend; for GPUs: {error.hint}',
            ) from error  # fmt: skip
        return nccl.start(here, timeout or MEETING, device)
    from ox.distributed import mpi

    if here.by in ("torchrun", "srun") and here.size > 1:
        raise _not_by_mpi(here)
    mpi.library()  # a missing mpi4py is said before anybody waits
    if here.by == "mpi" and here.size > 1 and not mpi.started():
        meet(here, timeout or default_timeout(timedelta(seconds=MEETING)))
    made = mpi.start()
    over(here)
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


def remember(run: str) -> None:
    """Let those that `ox launch` starts again know what they had begun."""
    if FOLDER in os.environ:
        leave(Path(os.environ[FOLDER]).parent, "begun", run)


def remembered() -> str | None:
    """What an earlier attempt of this launch had begun."""
    return _text(Path(os.environ[FOLDER]).parent / "begun") if FOLDER in os.environ else None


# -- the meeting -------------------------------------------------------------------------------------------------


def meet(here: Launch, limit: float) -> None:
    """Wait until all ranks, or without `ox launch` those of this machine, have come.

    Raises:
        DistributedError: ranks did not come within `limit` seconds, or ended before; it names them.
    """
    place = _place(here)
    if place is None:
        return
    folder, rank, size = place
    leave(folder, f"rank.{rank}", "here")
    began = monotonic()
    while True:
        missing = [other for other in range(size) if not (folder / f"rank.{other}").exists()]
        ended = {other: text for other in range(size) if (text := _last(folder, other)) is not None}
        if not missing and not ended:
            break
        if ended or monotonic() - began > limit:
            leave(folder, f"gave_up.{rank}", GAVE_UP)  # so that nobody waits for this one
            raise _missing(here, missing, ended, limit, here.rank - rank)
        sleep(0.01)
    _met.append(True)


def over(here: Launch) -> None:
    """After the meeting, when all ranks are in MPI: the folder that they made themselves goes."""
    if here.local_rank == 0 and FOLDER not in os.environ and (folder := _own()) is not None:
        shutil.rmtree(folder, ignore_errors=True)


def watch() -> None:
    """Leave word if this process ends before it met the others; called when ox.distributed is imported.

    Under `ox launch`, `ox.distributed.rank` does it."""
    here = launch()
    place = _place(here) if here.by == "mpi" and here.size > 1 and FOLDER not in os.environ else None
    if place is not None:
        atexit.register(_last_word, *place[:2])


def _last_word(folder: Path, rank: int) -> None:
    if not _met:
        leave(folder, f"ended.{rank}", "ended without a call of it")


GAVE_UP = "gave up waiting"
_met: list[bool] = []


def _place(here: Launch) -> tuple[Path, int, int] | None:
    """The folder to meet in, this rank's number there, and how many come; None where there is no such folder."""
    given = os.environ.get(FOLDER)
    folder, rank, size = (Path(given), here.rank, here.size) if given else (_own(), here.local_rank, here.local_size)
    try:
        if folder is None:
            return None
        if not given:
            _remove_abandoned(folder)
        folder.mkdir(mode=0o700, exist_ok=True)
        mine = not folder.is_symlink() and folder.stat().st_uid == os.getuid()
    except OSError:
        return None
    return (folder, rank, size) if mine else None  # the meeting is a courtesy, and MPI does without it


def _last(folder: Path, rank: int) -> str | None:
    """Why a rank will not come to the meeting."""
    return _text(folder / f"gave_up.{rank}") or _text(folder / f"ended.{rank}")


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _missing(here: Launch, missing: list[int], ended: dict[int, str], limit: float, first: int) -> DistributedError:
    """The error of a meeting that failed. `first` is added to the numbers of one machine, to name ranks."""

    def names(ranks: list[int]) -> str:
        return f"rank{'s' * (len(ranks) > 1)} {', '.join(str(first + rank) for rank in ranks)}"

    dead = {rank: text for rank, text in ended.items() if text != GAVE_UP}
    if dead:
        return DistributedError(
            f"{names(list(dead))} ended before init_process_group", where=f"rank {here.rank}",
            extra={f"rank {first + rank}": text for rank, text in dead.items()},
            hint="the output of the rank that ended says why",
        )  # fmt: skip
    if missing:
        what = f"{names(missing)} did not come to init_process_group within {limit:g} s"
    else:
        what = f"{names(list(ended))} gave up waiting for rank {here.rank} in init_process_group"
    return DistributedError(
        what, where=f"rank {here.rank}", expected=f"{here.size} ranks",
        hint="init_process_group(timeout=...), or ox launch --timeout SECONDS",
    )  # fmt: skip


def leave(folder: Path, name: str, text: str) -> None:
    """A file that is there whole or not at all; the first word counts."""
    try:
        if (folder / name).exists():
            return
        unfinished = folder / f".{name}.{os.getpid()}"
        unfinished.write_text(text)
        unfinished.rename(folder / name)
    except OSError:
        pass  # the folder is gone with the launch that made it


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


def _remove_abandoned(folder: Path) -> None:
    """Remove the folders of mpiexecs that were killed: those whose number and start are no living process's."""
    kind, user, *_ = folder.name.split("-")
    for other in folder.parent.glob(f"{kind}-{user}-*-*"):
        parent, _, began = other.name.removeprefix(f"{kind}-{user}-").partition("-")
        with suppress(OSError, ValueError, IndexError):
            if not (parent.isdigit() and began.isdigit()) or time() - other.stat().st_mtime < ABANDONED:
                continue  # what is new may be of another container, whose processes are not seen from here
            stat = Path(f"/proc/{parent}/stat")
            if not stat.exists() or stat.read_text().rpartition(")")[2].split()[19] != began:
                shutil.rmtree(other)
