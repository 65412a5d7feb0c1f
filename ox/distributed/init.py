"""Detects the launcher of this process (mpiexec, srun, torchrun), its rank and the world size, and starts the backend.

`MPI_Init` waits for all ranks without a limit and cannot be interrupted. So the ranks first wait for each other with a
timeout (a *rendezvous*). Ranks that no mpiexec started meet at a store (`ox.distributed.rendezvous`). Those of mpiexec
meet in a folder: each writes a file into it and waits for the files of the others. These are the ranks of one machine,
or with `ox launch` all ranks.
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
from ox.temporary_files import ABANDONED

FOLDER = "OX_LAUNCH_FOLDER"  # the folder for the rendezvous under `ox launch`
TIMEOUT = "OX_LAUNCH_TIMEOUT"  # seconds, of `ox launch --timeout`
STORE = ("torchrun", "srun")  # launchers whose ranks meet at a store
START_TIMEOUT = 120.0  # seconds in which all ranks must have started


@dataclass(frozen=True)
class Launch:
    """The launcher of this process, its rank and the number of ranks, from the environment variables."""

    by: str  # mpi, torchrun, srun, or nobody
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1


def is_rank() -> bool:
    """Whether a launcher started this process as one of several. The batch script of a Slurm job is none of them."""
    here = launch()
    step = here.by != "srun" or "SLURM_STEP_NODELIST" in os.environ
    return here.size > 1 and here.by in ("mpi", *STORE) and step


def launch() -> Launch:
    """The launcher of this process."""
    numbers = {name: int(value) for name, value in os.environ.items() if name in _NUMBERS and value.isdigit()}
    for by, rank, size, local_rank, local_size in _LAUNCHERS:
        if rank in numbers and size in numbers:
            local = numbers.get(local_rank, numbers[rank]), numbers.get(local_size, numbers[size])
            return Launch(by, numbers[rank], numbers[size], *local)
    return Launch("nobody")


def as_torchrun(here: Launch) -> dict[str, str]:
    """The environment variables that torchrun sets, for scripts that read them."""
    return {
        "RANK": str(here.rank),
        "WORLD_SIZE": str(here.size),
        "LOCAL_RANK": str(here.local_rank),
        "LOCAL_WORLD_SIZE": str(here.local_size),
    }


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
    """The backend of all ranks of the program. `rank` and `world_size` count where no launcher tells them."""
    here = launch()
    if here.by == "nobody" and rank >= 0 and world_size > 1:
        here = Launch("torchrun", rank, world_size, rank, world_size)
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
    backend = _start_mpi(here, timeout or default_timeout(timedelta(seconds=START_TIMEOUT)))
    remove_own_folder(here)
    if backend.size != here.size and here.by != "nobody":
        raise DistributedError(
            f"the launcher started {here.size} processes, but this MPI sees {backend.size}",
            hint=f"the mpiexec of the MPI that mpi4py uses: {command(here.size)}",
        )
    return backend


def _start_mpi(here: Launch, limit: float) -> Any:
    """Waits for all ranks for at most `limit` seconds, unless MPI has started already, and starts it."""
    from ox.distributed import mpi

    if here.size == 1 or mpi.started() or here.by not in ("mpi", *STORE):
        return mpi.start()
    if here.by == "mpi":
        wait_for_ranks(here, limit)
        return mpi.start()
    from ox.distributed import rendezvous

    mpi.check_pmi()
    try:
        with rendezvous.met(here.rank, here.size, limit, monotonic() - _attempt_began[0]):
            return mpi.start()
    finally:
        _attempt_began[0] = monotonic()


def _backend_name(backend: str | None, here: Launch) -> str:
    wanted = (backend or "").lower()
    if wanted in ("mpi", "gloo", "nccl"):
        return "mpi" if wanted == "gloo" else wanted
    if backend is None or wanted == "cpu:gloo,cuda:nccl":
        from ox.devices import cuda

        return "nccl" if here.size > 1 and cuda.available() else "mpi"
    raise ArgumentError(f"no backend {backend!r}", expected="mpi or nccl")


def command(size: int) -> str:
    """The command that starts this program on `size` ranks."""
    mpiexec = Path(sys.executable).parent / "mpiexec"
    parts = sys.orig_argv[1:] or ["script.py"]
    return f"{mpiexec if mpiexec.exists() else 'mpiexec'} -n {size} {Path(sys.executable).name} {' '.join(parts)}"


def save_run(run: str) -> None:
    """Stores the name of the run, so that ranks that `ox launch` restarts resume it."""
    if FOLDER in os.environ:
        write_once(Path(os.environ[FOLDER]).parent, "begun", run)


def saved_run() -> str | None:
    """The run that an earlier attempt of this launch created; None if there is none."""
    return _text(Path(os.environ[FOLDER]).parent / "begun") if FOLDER in os.environ else None


# -- the rendezvous ----------------------------------------------------------------------------------------------


def wait_for_ranks(here: Launch, limit: float) -> None:
    """Waits until all ranks have started; without `ox launch`, all ranks of this machine.

    Raises:
        DistributedError: ranks did not start within `limit` seconds, or ended before; it names them.
    """
    place = _rendezvous(here)
    if place is None:
        return
    folder, rank, size = place
    write_once(folder, f"rank.{rank}", "here")
    began = monotonic()
    while True:
        missing = [other for other in range(size) if not (folder / f"rank.{other}").exists()]
        ended = {other: text for other in range(size) if (text := _ended(folder, other)) is not None}
        if not missing and not ended:
            break
        if ended or monotonic() - began > limit:
            write_once(folder, f"gave_up.{rank}", GAVE_UP)  # so that the others do not wait for this rank
            raise _rendezvous_error(here, missing, ended, limit, here.rank - rank)
        sleep(0.01)
    _all_started.append(True)


def remove_own_folder(here: Launch) -> None:
    """Removes the folder of the rendezvous, if it is not that of `ox launch`, once MPI has started."""
    if here.local_rank == 0 and FOLDER not in os.environ and (folder := _own_folder()) is not None:
        shutil.rmtree(folder, ignore_errors=True)


def record_early_exit() -> None:
    """Registers a record of the exit, for the case that this process ends before the rendezvous. The import of
    ox.distributed calls it. Under `ox launch`, `ox.distributed.rank` does the same."""
    here = launch()
    place = _rendezvous(here) if here.by == "mpi" and here.size > 1 and FOLDER not in os.environ else None
    if place is not None:
        atexit.register(_record_exit, *place[:2])


def _record_exit(folder: Path, rank: int) -> None:
    if not _all_started:
        write_once(folder, f"ended.{rank}", "ended without a call of it")


GAVE_UP = "gave up waiting"
_all_started: list[bool] = []
_attempt_began = [monotonic()]  # the start of this process, or the end of its last attempt to meet the others


def _rendezvous(here: Launch) -> tuple[Path, int, int] | None:
    """The folder of the rendezvous, the number of this rank in it, and the number of ranks; None without a folder."""
    launch_folder = os.environ.get(FOLDER)
    folder, rank, size = (
        (Path(launch_folder), here.rank, here.size)
        if launch_folder
        else (_own_folder(), here.local_rank, here.local_size)
    )
    try:
        if folder is None:
            return None
        if not launch_folder:
            _remove_abandoned(folder)
        folder.mkdir(mode=0o700, exist_ok=True)
        mine = not folder.is_symlink() and folder.stat().st_uid == os.getuid()
    except OSError:
        return None
    return (folder, rank, size) if mine else None  # without a rendezvous, MPI itself waits


def _ended(folder: Path, rank: int) -> str | None:
    """Why a rank will not arrive at the rendezvous; None if it still may."""
    return _text(folder / f"gave_up.{rank}") or _text(folder / f"ended.{rank}")


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _rendezvous_error(
    here: Launch, missing: list[int], ended: dict[int, str], limit: float, first: int
) -> DistributedError:
    """The error of a failed rendezvous. `first` is the rank of number 0 in the folder."""

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


def write_once(folder: Path, name: str, text: str) -> None:
    """Writes a file atomically, unless it exists: the first record counts."""
    try:
        if (folder / name).exists():
            return
        unfinished = folder / f".{name}.{os.getpid()}"
        unfinished.write_text(text)
        unfinished.rename(folder / name)
    except OSError:
        pass  # the launch has ended and removed the folder


def _own_folder() -> Path | None:
    """A folder that all ranks of one mpiexec on this machine find: its name contains the PID of their parent
    process."""
    try:
        parent = os.getppid()
        fields = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()
        name = Path(f"/proc/{parent}/comm").read_text().strip()
    except OSError:
        return None
    if "pmi_proxy" not in name:
        return None  # a shell stands between mpiexec and this process, so the parents differ
    return Path(tempfile.gettempdir()) / f"ox-{os.getuid()}-{parent}-{fields[19]}"


def _remove_abandoned(folder: Path) -> None:
    """Removes the folders of killed mpiexecs: those whose PID and start time belong to no running process."""
    kind, user, *_ = folder.name.split("-")
    for other in folder.parent.glob(f"{kind}-{user}-*-*"):
        parent, _, began = other.name.removeprefix(f"{kind}-{user}-").partition("-")
        with suppress(OSError, ValueError, IndexError):
            if not (parent.isdigit() and began.isdigit()) or time() - other.stat().st_mtime < ABANDONED:
                continue  # it may belong to another container, whose processes are not visible here
            stat = Path(f"/proc/{parent}/stat")
            if not stat.exists() or stat.read_text().rpartition(")")[2].split()[19] != began:
                shutil.rmtree(other)
