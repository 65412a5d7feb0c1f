"""`ox train RECIPE`: a run from its first step to its curves, or what is left of one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ox.train import Run
    from ox.train.show import Terminal


def train(
    recipe: Annotated[
        str | None, typer.Argument(help="A name such as digits, or the path to a page of your own.", show_default=False)
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option("--from", help="Begin from this ONNX file.", metavar="MODEL.ONNX", show_default=False),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="What --from learns: a recipe, a page, or arrays (.npz).", show_default=False),
    ] = None,
    layers: Annotated[
        str | None, typer.Option(help="Which layers of --from learn: all or head.", show_default="all")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training data.", show_default="recipe")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Samples a step.", show_default="recipe")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.", show_default="recipe")] = None,
    seed: Annotated[int | None, typer.Option(help="Of all random numbers.", show_default="recipe, else 0")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or auto.", show_default="cpu")] = None,
    limit: Annotated[
        int | None, typer.Option(help="Use only the first so many samples of each part.", show_default="all")
    ] = None,
    checkpoint_every: Annotated[
        float | None,
        typer.Option(help="Seconds between checkpoints within an epoch.", show_default="30; and after each epoch"),
    ] = None,
    accumulate: Annotated[int | None, typer.Option(help="Batches a step.", show_default="recipe, else 1")] = None,
    clip: Annotated[
        float | None, typer.Option(help="The largest norm of a step's gradients.", show_default="recipe, else any")
    ] = None,
    ema: Annotated[
        float | None,
        typer.Option(help="Decay of averaged weights, as 0.999; they are kept.", show_default="recipe, else none"),
    ] = None,
    patience: Annotated[
        int | None, typer.Option(help="Stop after so many epochs without a better.", show_default="recipe, else never")
    ] = None,
    amp: Annotated[
        str | None, typer.Option(help="Mixed precision: bf16 or fp16.", show_default="recipe, else none")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes that make batches.", show_default="recipe, else 0")
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(help="How many of the newest checkpoints are kept, besides the best.", show_default="2"),
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option(help="End after so many steps, if the epochs do not before.", show_default="none")
    ] = None,
    steps_per_epoch: Annotated[
        int | None,
        typer.Option(help="Steps that make an epoch; what an endless stream needs.", show_default="once the data"),
    ] = None,
    drop_last: Annotated[
        bool | None,
        typer.Option("--drop-last", help="Leave out a last batch that is not full.", show_default="recipe, else keep"),
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Of each process.", show_default="as many as can run")] = None,
    timeout: Annotated[
        float | None,
        typer.Option(help="Seconds to wait for a batch of a worker, or for another process.", show_default="none"),
    ] = None,
    nproc: Annotated[
        int | None, typer.Option(help="Processes that train together; each takes batches of its own.", show_default="1")
    ] = None,
    max_restarts: Annotated[
        int, typer.Option(help="With --nproc: how often all start again from the checkpoint when one dies.")
    ] = 0,
    out: Annotated[
        Path | None, typer.Option(help="The folder to make the run's folder in.", show_default="runs")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Go on with this run, as it was begun; to more --epochs.", metavar="RUN", show_default=False),
    ] = None,
) -> None:
    """Train a recipe: a name such as digits, or the path to a page of your own.

    Or an ONNX file on data of your own: --from model.onnx --data page.py

    Ctrl-C writes a checkpoint and says how to resume.
    """
    from ox_cli import ranks

    flags: dict[str, Any] = {
        "epochs": epochs,
        "batch_size": batch_size,
        "lr": lr,
        "seed": seed,
        "device": device,
        "limit": limit,
        "checkpoint_every": checkpoint_every,
        "accumulate": accumulate,
        "clip": clip,
        "ema": ema,
        "patience": patience,
        "amp": amp,
        "workers": workers,
        "keep": keep,
        "max_steps": max_steps,
        "steps_per_epoch": steps_per_epoch,
        "drop_last": drop_last,
        "threads": threads,
        "timeout": timeout,
    }
    source = {"from": from_file, "data": data, "layers": layers}
    ranks.check(nproc)
    if resume is not None:
        _refuse(recipe, out, flags | source)
    if not ranks.is_rank() and (count := ranks.wanted(nproc, resume)) > 1:
        ranks.start({"": recipe, **source, **flags, "out": out, "resume": resume}, count, max_restarts)
        return
    with ranks.together() as speaks:
        _train(recipe, from_file, source, flags, out, resume, speaks)


def _train(
    recipe: str | None, from_file: Path | None, source: dict[str, Any], flags: dict[str, Any], out: Path | None,
    resume: Path | None, speaks: bool,
) -> None:  # fmt: skip
    """`train` in this process; `speaks` says whether anybody listens to it."""
    from ox.distributed.start import remembered
    from ox.train import Interrupted, load_from
    from ox.train import resume as go_on
    from ox.train import train as begin
    from ox.train.show import Silent, Terminal

    terminal, data, layers = Terminal(), source["data"], source["layers"]
    show = terminal if speaks else Silent()
    try:
        if (again := remembered()) is not None:  # a launch that starts its ranks once more
            run = go_on(again, show=show)
        elif resume is not None:
            run = go_on(resume, show=show, **{name: value for name, value in flags.items() if value is not None})
        elif from_file is not None:
            if recipe is not None or data is None:
                raise _usage(
                    "--from needs --data, and takes no recipe beside it",
                    hint="ox train --from model.onnx --data page.py",
                )
            run = begin(load_from(from_file, data, layers or "all"), out=out or Path("runs"), show=show, **flags)
        elif data is not None or layers is not None:
            raise _usage("--data and --layers go with --from", hint="ox train --from model.onnx --data page.py")
        elif recipe is None:
            raise _usage("ox train needs a recipe", hint="ox train digits")
        else:
            run = begin(recipe, out=out or Path("runs"), show=show, **flags)
    except Interrupted as stop:
        if speaks:
            terminal.print("\n" + stop.what)
            terminal.print("next: ", (str(stop.hint), "bold"))
        raise typer.Exit(stop.exit_code) from None
    if speaks:
        _next(terminal, run)


def _next(terminal: Terminal, run: Run) -> None:
    """What to do with a run that is finished; what its page lacks for an export."""
    shown = "" if run.folder.parent == Path("runs") else f" --run {run.folder}"
    if (obstacle := terminal.obstacle) is None:
        terminal.print("next: ", (f"ox export model.onnx{shown}", "bold"))
        return
    terminal.print((f"no export yet: {getattr(obstacle, 'what', None) or obstacle}", "yellow"))
    if hint := getattr(obstacle, "hint", None):
        terminal.print(f"to export: {hint}")
        page = shlex.quote(run.config["recipe"]["source"])
        terminal.print("then: ", (f"ox export model.onnx{shown} --recipe {page}", "bold"))


def _refuse(recipe: str | None, out: Path | None, flags: dict[str, Any]) -> None:
    """A run goes on as it was begun: whatever would change what was trained is refused, not ignored."""
    from ox.train.options import FREE

    given = [f"--{name.replace('_', '-')}" for name, value in flags.items() if value is not None and name not in FREE]
    given += ["--out"] if out is not None else []
    given += [f"the recipe {recipe}"] if recipe is not None else []
    if given:
        raise _usage(f"--resume goes on with the run as it was begun; it does not take {', '.join(given)}")


def _usage(what: str, hint: str | None = None) -> Exception:
    from ox_cli.errors import UsageError

    return UsageError(what, hint=hint or "ox train --help")
