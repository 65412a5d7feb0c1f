"""`ox launch -- page.py`: one program on several processes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def launch(
    command: Annotated[
        list[str], typer.Argument(metavar="-- PAGE [ARGS]...", help="A page, or -m and a module, and its arguments.")
    ],
    nproc: Annotated[
        int | None,
        typer.Option(help="How many processes (ranks).", show_default="one a core, or the host file's slots"),
    ] = None,
    hostfile: Annotated[
        Path | None,
        typer.Option(help="Lines of host:slots, for machines that share this folder.", show_default=False),
    ] = None,
    max_restarts: Annotated[int, typer.Option(help="How often all are started again when one fails.")] = 0,
    timeout: Annotated[
        float | None,
        typer.Option(help="Seconds that ranks wait for one another.", show_default="120 to meet, then 1800"),
    ] = None,
    label: Annotated[bool, typer.Option("--label", help="Begin each line of output with its rank.")] = False,
) -> None:
    """Run a page on several processes that train together, with mpiexec.

    ox launch --nproc 2 -- page.py --lr 0.1

    Ctrl-C and SIGTERM are passed on to all ranks; when one dies, all end. Under Slurm, srun --mpi=pmi2 python page.py
    starts the ranks itself.
    """
    from ox.distributed.launcher import Plan, run
    from ox_cli import ranks

    ranks.check(nproc)
    plan = Plan(command, nproc, hostfile, max_restarts, timeout, label)
    code = run(plan, lambda line: typer.echo(line, err=True))
    if code:
        raise typer.Exit(code)
