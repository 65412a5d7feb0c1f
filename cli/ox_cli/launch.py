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
        typer.Option(
            "--nproc",
            "--nproc-per-node",
            help="Number of processes (ranks) on this node; with a host file, in all.",
            show_default="one per core, or the slots of the host file",
        ),
    ] = None,
    nnodes: Annotated[
        str, typer.Option(help="Number of nodes, or a range MIN:MAX: the job goes on while nodes come and go.")
    ] = "1",
    rdzv_endpoint: Annotated[
        str | None,
        typer.Option(help="With several nodes: the one that holds the store.", metavar="HOST:PORT", show_default=False),
    ] = None,
    rdzv_id: Annotated[str, typer.Option(help="A name of the job, the same on all nodes.")] = "none",
    hostfile: Annotated[
        Path | None,
        typer.Option(help="File with one host:slots per line: starts a node on each by ssh.", show_default=False),
    ] = None,
    max_restarts: Annotated[int, typer.Option(help="How many times to restart all processes after a failure.")] = 0,
    timeout: Annotated[
        float | None,
        typer.Option(help="Seconds that ranks wait for each other.", show_default="120 at the start, then 1800"),
    ] = None,
    heartbeat_timeout: Annotated[
        float | None,
        typer.Option(help="Seconds after which a rank that hangs counts as failed; 0: never.", show_default="60"),
    ] = None,
    grace: Annotated[
        float, typer.Option(help="Seconds between a signal to stop and SIGKILL, to write checkpoints.")
    ] = 60.0,
    label: Annotated[bool, typer.Option("--label", help="Print the rank before each line of output.")] = False,
) -> None:
    """Run a training script on several processes (distributed training), on one or more nodes.

    ox launch --nproc 2 -- train.py --lr 0.1

    On each of several nodes: ox launch --nnodes 1:4 --rdzv-endpoint node1:29400 --max-restarts 3 -- train.py

    Ctrl-C, SIGTERM and SIGHUP stop all ranks; SIGUSR1 and SIGUSR2 are sent to them. If one rank dies or hangs, all are
    stopped.
    """
    import os

    from ox.distributed import frames, hosts, launcher
    from ox_cli import ranks

    ranks.check(nproc)
    if heartbeat_timeout is not None:
        os.environ[frames.HEARTBEAT] = f"{heartbeat_timeout:g}"
    endpoint = None if rdzv_endpoint is None else launcher.parse_endpoint(rdzv_endpoint)
    nodes = launcher.parse_nodes(nnodes)
    plan = launcher.Plan(command, nproc, nodes, endpoint, rdzv_id, max_restarts, timeout, label, grace)

    def report(line: str) -> None:
        typer.echo(line, err=True)

    code = launcher.run(plan, report) if hostfile is None else hosts.run(plan, hostfile, report)
    if code:
        raise typer.Exit(code)
