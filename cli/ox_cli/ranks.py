"""`ox train` on several processes: starts the ranks, and sets up each rank."""

from __future__ import annotations

from collections.abc import Iterator
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


def launch_ranks(options: dict[str, Any], nproc: int, restarts: int) -> None:
    """Runs `ox train` on `nproc` ranks; exits with their exit code. `options` maps the names of the given options to
    their values; a positional argument has an empty name."""
    from ox.distributed.launcher import Plan, run

    words = ["-m", "ox_cli", "train"]
    for name, value in (options | {"nproc": nproc}).items():
        if value is True:
            words.append(f"--{name.replace('_', '-')}")
        elif value is not None:
            words += [str(value)] if not name else [f"--{name.replace('_', '-')}", str(value)]
    code = run(
        Plan(words, nproc, restarts=restarts, timeout=options.get("timeout")), lambda line: typer.echo(line, err=True)
    )
    if code:
        raise typer.Exit(code)


@contextmanager
def process_group() -> Iterator[bool]:
    """Within the block several ranks form a process group. Yields whether this process prints.

    Raises:
        ArgumentError: RANK or WORLD_SIZE cannot be; and what `init_process_group` raises.
    """
    from ox.distributed import environment

    environment.check_variables(environment.launch())
    if not is_rank():
        yield True
        return
    from ox import distributed as dist

    dist.init_process_group()
    try:
        yield dist.get_rank() == 0
    except typer.Exit:  # all ranks exit together
        dist.destroy_process_group()
        raise
    dist.destroy_process_group()
