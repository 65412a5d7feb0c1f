"""`ox sweep RECIPE lr=1e-4..1e-1:log`: hyperparameter search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ox_cli.errors import UsageError

if TYPE_CHECKING:
    from ox.train.sweep import Sweep, Trial


def sweep(
    recipe: Annotated[
        str | None,
        typer.Argument(help="A built-in recipe such as digits, or the path of a recipe file.", show_default=False),
    ] = None,
    space: Annotated[
        list[str] | None,
        typer.Argument(
            help="Options to vary: lr=1e-4..1e-1:log, batch=32,64,128, epochs=5.", metavar="NAME=VALUES...",
            show_default=False,
        ),
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Number of trials.", min=1, show_default="20")] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="Metric on the validation data: accuracy, loss or another.", show_default="accuracy"),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the search.", show_default="0")] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            help="Run trials on a Ray cluster (Ray Tune): its address, auto or local.", metavar="ADDRESS",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder in which to create the sweep's folder.", show_default="sweeps")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Resume this sweep; --trials may rise.", metavar="SWEEP", show_default=False)
    ] = None,
) -> None:  # fmt: skip
    """Train a recipe with different options, and find the best: ox sweep digits lr=1e-4..1e-1:log batch=32,64,128

    Ctrl-C stops the sweep; --resume continues it.
    """
    from ox.train import Interrupted
    from ox.train.sweep import TRIALS, Sweep

    if ray is not None:  # before a folder is made
        from ox.ray.cluster import connect

        connect(ray)
    if resume is not None:
        if recipe is not None or metric is not None or seed is not None or out is not None:
            raise UsageError("--resume takes recipe, space, metric and seed from the sweep", hint="ox sweep --help")
        found = Sweep.find(resume)
        if trials is not None and trials != found.count:
            if ray is not None:
                raise UsageError("--resume with --ray keeps the number of trials", got=f"--trials {trials}",
                                 expected=f"{found.count}, or no --trials")  # fmt: skip
            found = found.with_count(trials)
    elif recipe is None:
        raise UsageError("ox sweep needs a recipe", hint="ox sweep digits lr=1e-4..1e-1:log")
    else:
        found = Sweep.create(
            recipe, space or [], metric or "accuracy", seed or 0, out or Path("sweeps"), trials or TRIALS
        )
    names = list(found.space())
    typer.echo(f"{found.recipe}: {found.count} trials of {', '.join(found.words)} · {found.metric} · {found.folder}")

    def show(trial: Trial) -> None:
        typer.echo("  ".join(_cells(trial, names)))
        if trial.error:
            typer.echo(f"    {trial.error}")

    try:
        if ray is None:
            done = found.run(found.count, show)
        else:
            from ox.ray.tuning import run as run_on_ray

            done = run_on_ray(found, ray, found.count)
            for trial in done:
                if trial.error:
                    show(trial)
    except Interrupted as stop:
        typer.echo(f"\nstopped · next: ox sweep --resume {found.folder}{'' if ray is None else f' --ray {ray}'}")
        raise typer.Exit(stop.exit_code) from None
    _table(found, done, names)


def _cells(trial: Trial, names: Sequence[str]) -> list[str]:
    values = [_text(trial.options[name]) for name in names]
    figure = "" if trial.value is None else f"{trial.value:.4g}"
    return [trial.folder.name, *values, figure, str(trial.epochs), trial.state]


def _text(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _table(found: Sweep, trials: Sequence[Trial], names: Sequence[str]) -> None:
    """Prints the trials, the best first, and the folder of the best."""
    from rich.console import Console
    from rich.table import Table

    best = found.best(trials)
    table = Table(box=None)
    for head in ("trial", *names, found.metric, "after epoch", "state", ""):
        table.add_column(head, no_wrap=True)
    sign = -1 if found.maximize else 1
    for trial in sorted(trials, key=lambda each: (each.state, sign * (each.value or 0.0), each.folder.name)):
        table.add_row(*_cells(trial, names), "best" if trial is best else "")
    Console(highlight=False).print(table)
    if best is None:
        typer.echo("no trial ran to its end")
        raise typer.Exit(1)
    typer.echo(f"best: {best.folder} · {found.metric} {best.value:.4g} on the validation data")
    typer.echo(f"next: ox export model.onnx --run {best.folder}")
