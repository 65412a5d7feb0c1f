"""`ox train` on several processes: starting them, and being one of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer


def is_rank() -> bool:
    """Whether MPI started this process as one of several."""
    from ox.distributed.start import launch

    here = launch()
    return here.by == "mpi" and here.size > 1


def wanted(nproc: int | None, resume: Path | None) -> int:
    """How many processes to train on: what was asked for, or for a run to be resumed as many as it began with."""
    if nproc is not None or resume is None:
        return nproc or 1
    from ox.train import find

    return int(find(resume).config["machine"].get("processes", 1))


def check(nproc: int | None) -> None:
    """Raise UsageError for a number of processes that is none."""
    if nproc is not None and nproc < 1:
        from ox_cli.errors import UsageError

        raise UsageError("--nproc is how many processes train together", expected="at least 1", got=str(nproc))


def start(options: dict[str, Any], nproc: int, restarts: int) -> None:
    """Run `ox train` on `nproc` ranks, and end as they end. `options` are those given, by their names; a bare word has
    an empty one."""
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
def together() -> Iterator[bool]:
    """Within, the ranks are a process group, if there are several. Gives whether this one speaks for all."""
    if not is_rank():
        yield True
        return
    from ox import distributed as dist

    dist.init_process_group()
    try:
        yield dist.get_rank() == 0
    except typer.Exit:  # what all ranks have agreed on
        dist.destroy_process_group()
        raise
    dist.destroy_process_group()
