"""Beginning a run, resuming one, and getting its model back."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from ox.devices import machine
from ox.distributed.start import remember
from ox.errors import TrainError
from ox.train import checkpoint, config
from ox.train import run as runs
from ox.train.loggers import Logger
from ox.train.loop import fit
from ox.train.options import Options
from ox.train.recipe import Recipe, load
from ox.train.run import Run
from ox.train.show import Silent
from ox.train.team import Alone, team
from ox.train.trainer import Trainer
from ox.train.weights import best_weights, load_model


def train(
    recipe: Recipe | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] = "runs",
    show: Silent | None = None,
    **options: Any,
) -> Run:
    """Train a recipe in a new run's folder under `out`; `options` as in `Options`, the rest from the recipe's defaults.

    Nothing is written before the recipe, the options, the model and the data have proven usable.

    Raises:
        RecipeError, ArgumentError, DeviceError: nothing was written.
        TrainError: the run cannot be made, or its loss is not finite.
        Interrupted: Ctrl-C; `resume` goes on.
    """
    recipe = recipe if isinstance(recipe, Recipe) else load(recipe)
    trainer = Trainer(recipe, Options.of(recipe.defaults, **options))
    run = _made(trainer, lambda: runs.create(recipe, trainer.options, out))
    with _alone(run, trainer.team):
        _go(trainer, run, show)
    return run


def _made(trainer: Trainer, make: Callable[[], Run]) -> Run:
    """The run that the first rank makes."""
    run = make() if trainer.team.first else None
    if run is not None:
        remember(str(run.folder.resolve()))
    folder = trainer.team.told(None if run is None else str(run.folder))
    return runs.find(folder) if run is None else run


def _alone(run: Run, ranks: Alone) -> AbstractContextManager[None]:
    """The run held against other processes, by the first of those that train it together."""
    return run.alone() if ranks.first else nullcontext()


def resume(folder: str | os.PathLike[str], *, show: Silent | None = None) -> Run:
    """Go on with a run that was stopped or killed, with the options and the page that it began with.

    Ends with the very weights that it would have ended with undisturbed, on the same machine and versions.

    Raises:
        LoadError: no run, or a damaged checkpoint, or one of another architecture.
        TrainError: the run is finished, its recipe was changed, or another process trains it.
    """
    with _alone(runs.find(folder), team()):
        trainer, run = prepare(folder)
        _go(trainer, run, show)
    return run


def fit_in(
    trainer: Trainer,
    folder: str | os.PathLike[str] | None,
    resume: bool = False,
    show: Silent | None = None,
    loggers: Sequence[Logger] = (),
) -> dict[str, Any]:
    """`Trainer.fit`."""
    if folder is None:
        return fit(trainer, None, show, loggers)
    known = trainer.team.told((Path(folder) / "config.toml").is_file())
    if known and not resume:
        raise TrainError(f"there is a run in {folder}", hint="fit(folder, resume=True) goes on with it")
    run = runs.find(folder) if known else _made(trainer, lambda: _at(folder, trainer))
    if changed := [name for name, value in vars(run.options).items() if getattr(trainer.options, name) != value]:
        raise TrainError(
            f"the run in {folder} was begun with other options",
            expected=", ".join(f"{name}={getattr(run.options, name)!r}" for name in changed),
            got=", ".join(f"{name}={getattr(trainer.options, name)!r}" for name in changed),
            hint="the same options, or a folder of its own",
        )
    with _alone(run, trainer.team):
        if run.result is not None:
            load_model(trainer.model, best_weights(checkpoint.load(run.best)), str(run.best))
            trainer.model.eval()
            return run.result
        if run.last.is_file():
            trainer.load_state_dict(checkpoint.load(run.last))
        return _go(trainer, run, show, loggers)


def _at(folder: str | os.PathLike[str], trainer: Trainer) -> Run:
    return runs.create_at(folder, trainer.recipe, trainer.options)


def prepare(folder: str | os.PathLike[str]) -> tuple[Trainer, Run]:
    """A run's trainer at its last checkpoint; changes nothing on disk, raises what `resume` does."""
    run = runs.find(folder)
    if run.result is not None:
        raise TrainError(
            f"{run.folder} is finished: there is nothing to resume",
            got=f"{run.options.epochs} of {run.options.epochs} epochs",
            hint=f"ox train {run.config['recipe']['name']} --epochs N begins a new run",
        )
    recipe = run.recipe()
    if recipe.sha256 != run.config["recipe"]["sha256"]:
        raise TrainError(
            f"{run.folder / 'recipe.py'} was changed since the run began",
            hint="put it back as it was, or train the changed page as a run of its own",
        )
    trainer = Trainer(recipe, run.options)
    # a run that was killed before its first checkpoint begins again: its options and its seed stand in the folder
    if run.last.is_file():
        trainer.load_state_dict(checkpoint.load(run.last))
    return trainer, run


def _go(trainer: Trainer, run: Run, show: Silent | None, loggers: Sequence[Logger] = ()) -> dict[str, Any]:
    show, changed = show or Silent(), []
    if trainer.team.first:
        checkpoint.mend(run, trainer.progress.best, trainer.progress.step)
    if run.last.is_file() and trainer.team.first:
        changed = differences(run)
    if not trainer.team.first:
        show = Silent()
    show.begin(trainer, run, machine.threads(), changed)
    return fit(trainer, run, show, loggers)


def differences(run: Run) -> list[str]:
    """What has changed on this machine since the run began and may change its last bits."""
    found = config.versions(run.folder)
    noted = run.config["versions"]
    lines = [
        f"{name} {noted.get(name, 'absent')} then, {found.get(name, 'absent')} now"
        for name in sorted((noted.keys() | found.keys()) - {"git", "ox"})
        if noted.get(name) != found.get(name)
    ]
    if run.config["machine"]["threads"] != machine.threads():
        lines.append(f"{run.config['machine']['threads']} threads then, {machine.threads()} now")
    return lines


def restore(folder: str | os.PathLike[str] | Run | None = None) -> tuple[Recipe, Any]:
    """The recipe and the model of a run with its best weights, in eval mode; the newest run when none is named.

    Raises:
        LoadError: no run, no best checkpoint yet, a damaged one, or one of another architecture.
    """
    run = folder if isinstance(folder, Run) else runs.newest_run() if folder is None else runs.find(folder)
    state = checkpoint.load(run.best)
    recipe = run.recipe()
    model = recipe.model()
    load_model(model, best_weights(state), str(run.best))
    return recipe, model.eval()
