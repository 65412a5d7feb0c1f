"""Beginning a run, resuming one, and getting its model back."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from ox.devices import machine
from ox.distributed.start import remember
from ox.errors import ArgumentError, LoadError, TrainError
from ox.train import checkpoint, config
from ox.train import run as runs
from ox.train.checkpoint import Found
from ox.train.fingerprint import HARMLESS
from ox.train.fingerprint import differences as differences_of_facts
from ox.train.loggers import Logger
from ox.train.loop import Interrupted, fit
from ox.train.options import FREE, Options
from ox.train.page_changes import check_page
from ox.train.recipe import Recipe, load
from ox.train.run import Run
from ox.train.show import Silent
from ox.train.team import Alone, team
from ox.train.trainer import Trainer
from ox.train.validation import try_parts
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
        _begin(trainer, run, show)
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


def resume(folder: str | os.PathLike[str], *, show: Silent | None = None, **changes: Any) -> Run:
    """Go on with a run that was stopped or killed, with the options and the page that it began with.

    Ends with the very weights that it would have ended with undisturbed, on the same machine and versions. A run that
    is finished is left as it is, unless `changes` give it more epochs.

    Args:
        changes: other `epochs`, `patience`, `checkpoint_every`, `workers` or `keep` than it was begun with. With more
            epochs a scheduler is that of a run of so many.

    Raises:
        LoadError: no run, no checkpoint that is whole, or one of another architecture.
        TrainError: its recipe, its config or its data were changed, or another process trains it.
    """
    with _alone(runs.find(folder), team()):
        run = runs.find(folder)
        options = _changed(run.options, changes)
        if run.result is not None and not _more(run, run.result, options):
            (show or Silent()).was_finished(run)
            return run
        trainer, run, found = _prepared(run, options)
        _go(trainer, run, show, found=found)
    return run


def _changed(options: Options, changes: dict[str, Any]) -> Options:
    changes = {name: value for name, value in changes.items() if value is not None}
    if fixed := [name for name in changes if name not in FREE]:
        raise ArgumentError(
            f"a run goes on with the {fixed[0]} that it was begun with", expected=f"changes of {', '.join(FREE)}"
        )
    return replace(options, **changes)


def _more(run: Run, result: dict[str, Any], options: Options) -> bool:
    """Whether there is something left to do for a run that ended so."""
    done = result["epochs"]
    if options.epochs < done:
        raise TrainError(
            f"{run.folder} has trained more epochs than that already",
            expected=f"at least {done} epochs", got=str(options.epochs),
        )  # fmt: skip
    waited, steps = done - result["best"]["epoch"], result.get("steps", 0)
    return (
        options.epochs > done
        and (options.patience is None or waited < options.patience)
        and (options.max_steps is None or steps < options.max_steps)
    )


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
    if not known:
        run = _made(trainer, lambda: _at(folder, trainer))
        with _alone(run, trainer.team):
            return _begin(trainer, run, show, loggers)
    run = runs.find(folder)
    _check_options(run.options, trainer.options, f"the run in {folder} was begun with other options")
    with _alone(run, trainer.team):
        if run.result is not None and not _more(run, run.result, trainer.options):
            best = checkpoint.load(run.best)
            _check_facts(run, best, trainer)
            load_model(trainer.model, best_weights(best), str(run.best))
            trainer.model.eval()
            return run.result
        return _go(trainer, run, show, loggers, found=_load(trainer, run))


def _at(folder: str | os.PathLike[str], trainer: Trainer) -> Run:
    return runs.create_at(folder, trainer.recipe, trainer.options)


def prepare(folder: str | os.PathLike[str]) -> tuple[Trainer, Run]:
    """A run's trainer at its last checkpoint; changes nothing on disk, raises what `resume` does."""
    run = runs.find(folder)
    trainer, run, _ = _prepared(run, run.options)
    return trainer, run


def _prepared(run: Run, options: Options) -> tuple[Trainer, Run, Found | None]:
    check_page(run)
    trainer = Trainer(run.recipe(), options)
    return trainer, run, _load(trainer, run)


def _load(trainer: Trainer, run: Run) -> Found | None:
    """Take the trainer to the run's newest whole checkpoint, and give it; None before the first: a run that was killed
    then begins again, for its options and its seed stand in the folder."""
    found = checkpoint.newest(run)
    if found is None:
        return None
    state = found.state
    then = Options(**state.setdefault("options", run.config["options"]))
    _check_options(then, trainer.options, f"{run.folder / 'config.toml'} was changed since the run began")
    _check_facts(run, state, trainer)
    trainer.load_state_dict(state)
    progress = trainer.progress
    if progress.epoch > trainer.options.epochs:
        raise TrainError(
            f"{run.folder} has trained more epochs than that already",
            expected=f"at least {progress.epoch} epochs", got=str(trainer.options.epochs),
        )  # fmt: skip
    if found.lost is not None:
        progress.best = None
        if trainer.finished:
            raise LoadError(
                f"the best weights of {run.folder}, of epoch {found.lost}, are gone, and there is no epoch to come",
                hint=f"ox train --resume {run.folder} --epochs {progress.epoch + 1}",
            )
    trainer.team.decide((), False)  # nobody reads any more what the first is about to mend
    return found


def _check_options(then: Options, now: Options, what: str) -> None:
    names = [name for name, value in vars(then).items() if name not in FREE and getattr(now, name) != value]
    if names:
        raise TrainError(
            what,
            expected=", ".join(f"{name}={getattr(then, name)!r}" for name in names),
            got=", ".join(f"{name}={getattr(now, name)!r}" for name in names),
            hint="the same options, or a run of its own",
        )


def _check_facts(run: Run, state: dict[str, Any], trainer: Trainer) -> None:
    """Raise TrainError where what was trained is not what would be gone on with."""
    changed = differences_of_facts(state.get("facts", {}), trainer.facts)
    if found := [(name, then, now) for name, then, now in changed if name not in HARMLESS]:
        raise TrainError(
            f"{run.folder} was trained with another {found[0][0]}",
            expected=found[0][1], got=found[0][2],
            extra={"also": ", ".join(name for name, *_ in found[1:])} if found[1:] else None,
            hint="as it was; or a run of its own, whose model begins from ox.load(best)['model']",
        )  # fmt: skip


def _begin(trainer: Trainer, run: Run, show: Silent | None, loggers: Sequence[Logger] = ()) -> dict[str, Any]:
    """Train a run that was just made. Where not one step can be taken there is nothing to keep."""
    try:
        try_parts(trainer)
        return _go(trainer, run, show, loggers)
    except (Exception, SystemExit) as error:
        if trainer.progress.step == 0 and trainer.team.first and not isinstance(error, Interrupted):
            run.remove()
        raise


def _go(
    trainer: Trainer, run: Run, show: Silent | None, loggers: Sequence[Logger] = (), found: Found | None = None
) -> dict[str, Any]:
    show, notes = show or Silent(), []
    if trainer.team.first:
        checkpoint.tidy(run)
        if found is not None:
            checkpoint.mend(run, found)
            notes = [*found.notes(), *_changes(found, trainer)]
            if changed := differences(run):
                notes.append(f"not bit for bit what it would have been: {'; '.join(changed)}")
        run.go_on(trainer.options)
    else:
        show = Silent()
    show.begin(trainer, run, machine.threads(), notes)
    return fit(trainer, run, show, loggers)


def _changes(found: Found, trainer: Trainer) -> list[str]:
    """What is gone on with otherwise, though no step that was taken depends on it."""
    then, now = Options(**found.state["options"]), trainer.options
    lines = [
        f"{name} {getattr(then, name)} then, {getattr(now, name)} now"
        for name in FREE
        if getattr(then, name) != getattr(now, name)
    ]
    if then.epochs != now.epochs and trainer.update.each_step:
        names = " and ".join(type(scheduler).__name__ for scheduler in trainer.update.each_step)
        lines.append(f"{names} is that of {now.epochs} epochs from here on")
    changed = differences_of_facts(found.state.get("facts", {}), trainer.facts)
    return lines + [f"{name} {was} then, {now} now" for name, was, now in changed]


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


def restore(folder: str | os.PathLike[str] | Run | None = None, recipe: Recipe | None = None) -> tuple[Recipe, Any]:
    """The recipe and the model of a run with its best weights, in eval mode; the newest run when none is named.

    Args:
        recipe: in place of the run's own copy: the page as it is now.

    Raises:
        LoadError: no run, no best checkpoint yet, a damaged one, or one of another architecture.
    """
    run = folder if isinstance(folder, Run) else runs.newest_run() if folder is None else runs.find(folder)
    state = checkpoint.load(run.best)
    recipe = run.recipe() if recipe is None else recipe
    model = recipe.model()
    load_model(model, best_weights(state), str(run.best))
    return recipe, model.eval()
