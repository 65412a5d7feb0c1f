"""`ox train RECIPE`: trains a model, or resumes a run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ox.train import Run
    from ox.train.display import Terminal


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(help="A built-in recipe such as digits, or the path of a recipe file.", show_default=False),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option("--from", help="Fine-tune this ONNX file.", metavar="MODEL.ONNX", show_default=False),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Data for --from: a recipe name, a recipe file or arrays (.npz).", show_default=False),
    ] = None,
    layers: Annotated[
        str | None, typer.Option(help="Layers of the --from file to train: all or head.", show_default="all")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Number of passes over the training data.", show_default="recipe")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Batch size, in samples.", show_default="recipe")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.", show_default="recipe")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all random numbers.", show_default="recipe, else 0")] = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="cpu, cuda, cuda:1 or auto. Of several processes, each takes a GPU of its own.", show_default="cpu"
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="Use only the first N samples of each data set.", show_default="all")
    ] = None,
    checkpoint_every: Annotated[
        float | None,
        typer.Option(help="Seconds between checkpoints within an epoch.", show_default="30, and after each epoch"),
    ] = None,
    accumulate: Annotated[
        int | None, typer.Option(help="Gradient accumulation: batches per step.", show_default="recipe, else 1")
    ] = None,
    clip: Annotated[
        float | None,
        typer.Option(help="Gradient clipping: largest norm of the gradients.", show_default="recipe, else off"),
    ] = None,
    ema: Annotated[
        float | None,
        typer.Option(
            help="Keep an exponential moving average of the weights, with this decay.", show_default="recipe, else off"
        ),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(help="Early stopping after N epochs without improvement.", show_default="recipe, else off"),
    ] = None,
    amp: Annotated[
        str | None, typer.Option(help="Mixed precision: bf16 or fp16.", show_default="recipe, else off")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Worker processes of the data loader.", show_default="recipe, else 0")
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(help="Number of recent checkpoints to keep, besides the best.", show_default="2"),
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option(help="Stop after N steps, if the epochs do not end before.", show_default="no limit")
    ] = None,
    steps_per_epoch: Annotated[
        int | None,
        typer.Option(help="Steps per epoch; needed for endless streams.", show_default="one pass over the data"),
    ] = None,
    drop_last: Annotated[
        bool | None,
        typer.Option("--drop-last", help="Drop the last batch if it is not full.", show_default="recipe, else keep"),
    ] = None,
    compile: Annotated[
        bool | None,
        typer.Option("--compile", help="Run the training step as a recorded graph.", show_default="recipe, else off"),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="CPU threads per process.", show_default="all usable cores")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(help="Seconds to wait for a data loader worker or another rank.", show_default="no limit"),
    ] = None,
    nproc: Annotated[int | None, typer.Option(help="Processes for distributed training.", show_default="1")] = None,
    max_restarts: Annotated[
        int, typer.Option(help="With --nproc or --ray: how often to restart from the checkpoint after a process dies.")
    ] = 0,
    grace: Annotated[
        float, typer.Option(help="With --nproc: seconds between a signal to stop and SIGKILL, to write the checkpoint.")
    ] = 60.0,
    ray: Annotated[
        str | None,
        typer.Option(
            help="Train on a Ray cluster: its address, auto or local; --nproc is the number of workers.",
            metavar="ADDRESS",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder in which to create the run's folder.", show_default="runs")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Resume this run with its own options; --epochs may be raised.", metavar="RUN", show_default=False
        ),
    ] = None,
) -> None:
    """Train a model from a recipe: a built-in name such as digits, or a recipe file.

    To fine-tune an ONNX file on your own data: --from model.onnx --data recipe.py

    Ctrl-C, SIGTERM and SIGHUP write a checkpoint and stop; SIGUSR1 and SIGUSR2 write one and go on.
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
        "compile": compile,
        "threads": threads,
        "timeout": timeout,
    }
    source = {"from": from_file, "data": data, "layers": layers}
    ranks.check(nproc)
    if resume is not None:
        _refuse(recipe, out, flags | source)
    if ray is not None:
        _train_on_ray(ray, recipe, source, flags, out, resume, nproc, max_restarts)
        return
    if not ranks.is_rank() and (count := ranks.process_count(nproc, resume)) > 1:
        ranks.check_gpus(ranks.device_of(recipe, device, resume), count)
        ranks.launch_ranks({"": recipe, **source, **flags, "out": out, "resume": resume}, count, max_restarts, grace)
        return
    with ranks.process_group(lambda: ranks.device_of(recipe, device, resume)) as is_main:
        _train(recipe, from_file, source, flags, out, resume, is_main)


def _train(
    recipe: str | None, from_file: Path | None, source: dict[str, Any], flags: dict[str, Any], out: Path | None,
    resume: Path | None, is_main: bool,
) -> None:  # fmt: skip
    """`train` in this process; only the process with `is_main` prints."""
    from ox.distributed.init import saved_run
    from ox.train import Interrupted, load_from
    from ox.train import resume as go_on
    from ox.train import train as begin
    from ox.train.display import Silent, Terminal

    terminal, data, layers = Terminal(), source["data"], source["layers"]
    show = terminal if is_main else Silent()
    try:
        if (again := saved_run()) is not None:  # a restart by ox launch
            run = go_on(again, show=show)
        elif resume is not None:
            run = go_on(resume, show=show, **{name: value for name, value in flags.items() if value is not None})
        elif from_file is not None:
            if recipe is not None or data is None:
                raise _usage(
                    "--from needs --data and no recipe argument",
                    hint="ox train --from model.onnx --data recipe.py",
                )
            run = begin(load_from(from_file, data, layers or "all"), out=out or Path("runs"), show=show, **flags)
        elif data is not None or layers is not None:
            raise _usage("--data and --layers need --from", hint="ox train --from model.onnx --data recipe.py")
        elif recipe is None:
            raise _usage("ox train needs a recipe", hint="ox train digits")
        else:
            run = begin(recipe, out=out or Path("runs"), show=show, **flags)
    except Interrupted as stop:
        if is_main:
            terminal.print("\n" + stop.what)
            terminal.print("next: ", (str(stop.hint), "bold"))
        raise typer.Exit(stop.exit_code) from None
    if is_main:
        _next(terminal, run)


def _train_on_ray(
    address: str, recipe: str | None, source: dict[str, Any], flags: dict[str, Any], out: Path | None,
    resume: Path | None, nproc: int | None, restarts: int,
) -> None:  # fmt: skip
    """`train` on the workers of a Ray cluster."""
    from ox.ray import recipe_run
    from ox.train.display import Terminal

    given = [f"--{name.replace('_', '-')}" for name, value in (source | flags).items() if value is not None]
    if resume is not None and given:
        raise _usage(f"--resume with --ray does not take {', '.join(given)}")
    if any(value is not None for value in source.values()):
        raise _usage("--ray trains a recipe, not an ONNX file", hint="ox train digits --ray auto")
    if resume is not None:
        run = recipe_run.resume(resume, address, nproc=nproc, restarts=restarts)
    elif recipe is None:
        raise _usage("ox train needs a recipe", hint="ox train digits --ray auto")
    else:
        run = recipe_run.train(recipe, address, out=out or Path("runs"), nproc=nproc or 1, restarts=restarts, **flags)
    _next(Terminal(), run)


def _next(terminal: Terminal, run: Run) -> None:
    """Prints the next command for a finished run, or what its recipe lacks for an export."""
    shown = "" if run.folder.parent == Path("runs") else f" --run {run.folder}"
    if (obstacle := terminal.obstacle) is None:
        # of a recipe with a tokenizer a folder, which the server answers texts from
        target = run.config["recipe"]["name"] if run.recipe().optional("tokenizer") is not None else "model.onnx"
        terminal.print("next: ", (f"ox export {target}{shown}", "bold"))
        return
    terminal.print((f"this run cannot be exported yet: {getattr(obstacle, 'what', None) or obstacle}", "yellow"))
    if hint := getattr(obstacle, "hint", None):
        terminal.print(f"to export: {hint}")
        recipe_file = shlex.quote(run.config["recipe"]["source"])
        terminal.print("then: ", (f"ox export model.onnx{shown} --recipe {recipe_file}", "bold"))


def _refuse(recipe: str | None, out: Path | None, flags: dict[str, Any]) -> None:
    """Refuses options that would change what a resumed run trains."""
    from ox.train.run.train_config import CHANGEABLE

    given = [
        f"--{name.replace('_', '-')}" for name, value in flags.items() if value is not None and name not in CHANGEABLE
    ]
    given += ["--out"] if out is not None else []
    given += [f"the recipe {recipe}"] if recipe is not None else []
    if given:
        raise _usage(f"--resume uses the run's own options and does not take {', '.join(given)}")


def _usage(what: str, hint: str | None = None) -> Exception:
    from ox_cli.errors import UsageError

    return UsageError(what, hint=hint or "ox train --help")
