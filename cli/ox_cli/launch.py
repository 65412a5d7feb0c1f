"""`ox launch -- train.py`: a script on several processes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def launch(
    command: Annotated[
        list[str],
        typer.Argument(metavar="-- SCRIPT [ARGS]...", help="A script, or -m and a module, and its arguments."),
    ],
    nproc: Annotated[
        int | None,
        typer.Option(help="Number of processes (ranks).", show_default="one per core, or the slots of the host file"),
    ] = None,
    hostfile: Annotated[
        Path | None,
        typer.Option(help="File with one host:slots per line. The hosts must share this folder.", show_default=False),
    ] = None,
    max_restarts: Annotated[int, typer.Option(help="How many times to restart all processes after one fails.")] = 0,
    timeout: Annotated[
        float | None,
        typer.Option(help="Seconds that ranks wait for each other.", show_default="120 at the start, then 1800"),
    ] = None,
    label: Annotated[bool, typer.Option("--label", help="Print the rank before each line of output.")] = False,
) -> None:
    """Run a training script on several processes with mpiexec (distributed training).

    ox launch --nproc 2 -- train.py --lr 0.1

    Ctrl-C and SIGTERM are sent to all ranks. If one rank dies, all are stopped.

    Under Slurm, start the ranks with: srun --mpi=pmi2 python train.py
    """
    from ox.distributed.launcher import Plan, run
    from ox_cli import ranks

    ranks.check(nproc)
    plan = Plan(command, nproc, hostfile, max_restarts, timeout, label)
    code = run(plan, lambda line: typer.echo(line, err=True))
    if code:
        raise typer.Exit(code)
