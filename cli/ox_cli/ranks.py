"""`ox train` on several processes: starts the ranks, and sets up each rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer


def is_rank() -> bool:
    """Whether a launcher started this process as one of several."""
    from ox.distributed import environment

    return environment.is_rank()


def process_count(nproc: int | None, resume: Path | None) -> int:
    """The number of processes: --nproc, or for a resumed run the number that it began with."""
    if nproc is not None or resume is None:
        return nproc or 1
    from ox.train import find

    return int(find(resume).config["machine"].get("processes", 1))


def check(nproc: int | None) -> None:
    """Raises UsageError if `nproc` is less than 1."""
    if nproc is not None and nproc < 1:
        from ox_cli.errors import UsageError

        raise UsageError("--nproc must be a number of processes", expected="at least 1", got=str(nproc))


def device_of(recipe: str | None, device: str | None, resume: Path | None) -> str:
    """The device that a run will ask for: --device, that of the run that goes on, or the recipe's default. "cpu" where
    the recipe cannot be read, which `train` says."""
    from ox.distributed.init import saved_run
    from ox.errors import OxError
    from ox.train import find, load

    if device is not None:
        return device
    try:
        if (folder := saved_run() or resume) is not None:
            return str(find(folder).options.device)
        return "cpu" if recipe is None else str(load(recipe).defaults.get("device", "cpu"))
    except OxError:
        return "cpu"


def check_gpus(device: str, count: int) -> None:
    """Whether ranks of this machine can each have a GPU, if they are to run on GPUs.

    Raises:
        DeviceError: there are fewer GPUs, or none that works. ArgumentError: all would have the same.
    """
    from ox.devices import cuda
    from ox.train.training_device import check_device

    check_device(device, count)
    if device == "cuda" or (device == "auto" and cuda.available()):
        cuda.check_ranks(count)


def launch_ranks(options: dict[str, Any], nproc: int, restarts: int, grace: float) -> None:
    """Runs `ox train` on `nproc` ranks; exits with their exit code. `options` maps the names of the given options to
    their values; a positional argument has an empty name."""
    from ox.distributed.launcher import Plan, run

    words = ["-m", "ox_cli", "train"]
    for name, value in (options | {"nproc": nproc}).items():
        if value is True:
            words.append(f"--{name.replace('_', '-')}")
        elif value is not None:
            words += [str(value)] if not name else [f"--{name.replace('_', '-')}", str(value)]
    plan = Plan(words, nproc, restarts=restarts, timeout=options.get("timeout"), grace=grace)
    code = run(plan, lambda line: typer.echo(line, err=True))
    if code:
        raise typer.Exit(code)


@contextmanager
def process_group(device: Callable[[], str]) -> Iterator[bool]:
    """Within the block several ranks form a process group. Yields whether this process prints.

    Args:
        device: the one that the run will ask for. Ranks on CPUs meet over MPI, also on a machine with GPUs.

    Raises:
        ArgumentError: RANK or WORLD_SIZE cannot be; and what `init_process_group` raises.
    """
    from ox.distributed import environment

    environment.check_variables(environment.launch())
    if not is_rank():
        yield True
        return
    from ox import distributed as dist
    from ox.devices import cuda

    dist.init_process_group("nccl" if cuda.available() and device() != "cpu" else "mpi")
    try:
        yield dist.get_rank() == 0
    except typer.Exit:  # all ranks exit together
        dist.destroy_process_group()
        raise
    dist.destroy_process_group()
