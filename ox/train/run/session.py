"""Starting a run, resuming it, and restoring its model."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from ox.devices import machine
from ox.distributed.init import save_run
from ox.errors import ArgumentError, LoadError, TrainError
from ox.random import stream_version
from ox.train.display import Silent
from ox.train.loggers import Logger
from ox.train.ranks import Ranks, current_ranks
from ox.train.recipe.datasets import length
from ox.train.recipe.manifest import changed, then_and_now
from ox.train.recipe.recipe import Recipe, load
from ox.train.run import checkpoint, config
from ox.train.run import run as runs
from ox.train.run.checkpoint import ResumePoint
from ox.train.run.fingerprint import IRRELEVANT
from ox.train.run.fingerprint import differences as differences_of_facts
from ox.train.run.loop import Interrupted, fit
from ox.train.run.recipe_changes import check_recipe_file
from ox.train.run.run import Run
from ox.train.run.train_config import CHANGEABLE, TrainConfig
from ox.train.run.train_on import train_on
from ox.train.trainer import Trainer
from ox.train.validation import check_first_samples
from ox.train.weights import best_weights, load_model


def train(
    recipe: Recipe | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] = "runs",
    show: Silent | None = None,
    **options: Any,
) -> Run:
    """Trains a recipe in a new run folder under `out`. `options` are fields of `TrainConfig`; the others come from the
    defaults of the recipe.

    Nothing is written before the recipe, the options, the model and the data are checked.

    Raises:
        RecipeError, ArgumentError, DeviceError: nothing was written.
        TrainError: the run cannot be created, or its loss is not finite.
        Interrupted: Ctrl-C; `resume` continues it.
    """
    recipe = recipe if isinstance(recipe, Recipe) else load(recipe)
    trainer = Trainer(recipe, TrainConfig.from_defaults(recipe.defaults, **options))
    run = _create_run(trainer, lambda: runs.create(trainer.recipe, trainer.options, out))
    with _locked(run, trainer.ranks):
        _start(trainer, run, show)
    return run


def _create_run(trainer: Trainer, make: Callable[[], Run]) -> Run:
    """The run, which rank 0 creates."""
    run = make() if trainer.ranks.is_first else None
    if run is not None:
        save_run(str(run.folder.resolve()))
    folder = trainer.ranks.broadcast(None if run is None else str(run.folder))
    if run is not None:
        return run
    # a rank on another machine sees the folder only if the machines share it
    return runs.find(folder) if trainer.on_checkpoint is None else Run(Path(folder), {})


def _locked(run: Run, ranks: Ranks) -> AbstractContextManager[None]:
    """A context that locks the run, on rank 0."""
    return run.lock() if ranks.is_first else nullcontext()


def resume(folder: str | os.PathLike[str], *, show: Silent | None = None, **changes: Any) -> Run:
    """Resumes a run that was stopped or killed, with its options and its recipe file.

    On the same machine with the same versions, the final weights are bit-identical to those of a run without an
    interruption. A finished run is not changed, unless `changes` add epochs.

    Args:
        changes: new values of options in `CHANGEABLE`, such as `epochs`, `patience`, `checkpoint_every`, `workers` or
            `keep`. With more epochs, the scheduler is the one of a run with this number of epochs.

    Raises:
        LoadError: no run, no undamaged checkpoint, or one of another architecture.
        TrainError: its recipe, its config or its data were changed, or another process trains it.
    """
    run = runs.find(folder)
    with _locked(run, current_ranks()), stream_version(run.random_stream):
        run = runs.find(folder)
        options = _with_changes(run.options, changes)
        if run.result is not None and not _has_more_steps(run, run.result, options):
            (show or Silent()).was_finished(run)
            return run
        trainer, run, found = _prepare(run, options)
        _fit(trainer, run, show, found=found)
    return run


def _with_changes(options: TrainConfig, changes: dict[str, Any]) -> TrainConfig:
    changes = {name: value for name, value in changes.items() if value is not None}
    if fixed := [name for name in changes if name not in CHANGEABLE]:
        raise ArgumentError(f"a resumed run keeps its {fixed[0]}", expected=f"changes of {', '.join(CHANGEABLE)}")
    return replace(options, **changes)


def _has_more_steps(run: Run, result: dict[str, Any], options: TrainConfig) -> bool:
    """Whether steps remain for a finished run with these options."""
    done = result["epochs"]
    if options.epochs < done:
        raise TrainError(
            f"{run.folder} has already trained more epochs",
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
        if trainer.finished:
            train_on(trainer)
        return fit(trainer, None, show, loggers)
    known = trainer.ranks.broadcast((Path(folder) / "config.toml").is_file())
    if known and not resume:
        raise TrainError(f"there is a run in {folder}", hint="fit(folder, resume=True) resumes it")
    if not known:
        if trainer.finished:
            train_on(trainer)
        run = _create_run(trainer, lambda: _create_at(folder, trainer))
        with _locked(run, trainer.ranks):
            return _start(trainer, run, show, loggers)
    run = runs.find(folder)
    with _locked(run, trainer.ranks), stream_version(run.random_stream):
        trainer.continue_run_of(_processes(run), run)
        _check_options(run.options, trainer.options, f"the run in {folder} has other options")
        _check_data(run, trainer)
        if run.result is not None and not _has_more_steps(run, run.result, trainer.options):
            best = checkpoint.load(run.best)
            _check_facts(run, best, trainer)
            load_model(trainer.model, best_weights(best), str(run.best))
            trainer.model.eval()
            return run.result
        return _fit(trainer, run, show, loggers, found=_load_newest(trainer, run))


def _create_at(folder: str | os.PathLike[str], trainer: Trainer) -> Run:
    recipe = trainer.recipe
    if recipe.manifest is None:  # of a script
        recipe = replace(recipe, manifest=recipe.describe(trainer.all_data))
    return runs.create_at(folder, recipe, trainer.options)


def _check_data(run: Run, trainer: Trainer) -> None:
    """Compares the data of a trainer with those of the run that it resumes. A script may draw its data anew each time,
    so for it a difference is a warning.

    Raises:
        TrainError: a recipe returns other data, or splits them differently.
    """
    recipe, stored = trainer.recipe, run.manifest()
    if stored is None:
        if not recipe.text:
            return
        own = run.recipe()  # of an older version, or without a description yet
        stored = own.describe(own.data())
    changes = stored.changes(recipe.describe(trainer.all_data), split=True)
    if not changes:
        return
    if recipe.text:
        expected, got = then_and_now(changes)
        raise TrainError(
            f"the data of {run.folder} were others", expected=expected, got=got,
            hint=f"{run.resume_command}; or a new run",
        )  # fmt: skip
    lengths = {name: part.samples for name, part in stored.parts.items()}
    if lengths == {name: length(part) for name, part in trainer.all_data.parts().items()}:  # else _check_facts says it
        warnings.warn(f"the data of {run.folder} were others: {changed(changes)}", stacklevel=4)


def prepare(folder: str | os.PathLike[str]) -> tuple[Trainer, Run]:
    """A run's trainer at its last checkpoint; changes nothing on disk, raises what `resume` does."""
    run = runs.find(folder)
    with stream_version(run.random_stream):
        trainer, run, _ = _prepare(run, run.options)
    return trainer, run


def _prepare(run: Run, options: TrainConfig) -> tuple[Trainer, Run, ResumePoint | None]:
    check_recipe_file(run)
    trainer = Trainer(run.recipe(), options)
    trainer.continue_run_of(_processes(run), run)
    return trainer, run, _load_newest(trainer, run)


def _processes(run: Run) -> int:
    """On how many processes the run began."""
    return int(run.config["machine"].get("processes", 1))


def _load_newest(trainer: Trainer, run: Run) -> ResumePoint | None:
    """Restores the trainer from the newest undamaged checkpoint and returns that; None before the first checkpoint.
    Then the run starts again from the options and the seed in its folder."""
    found = checkpoint.newest(run)
    if found is None:
        return None
    state = found.state
    then = TrainConfig(**state.setdefault("options", run.config["options"]))
    _check_options(then, trainer.options, f"{run.folder / 'config.toml'} was changed since the run began")
    _check_facts(run, state, trainer)
    trainer.load_state_dict(state)
    progress = trainer.progress
    if progress.epoch > trainer.options.epochs:
        raise TrainError(
            f"{run.folder} has already trained more epochs",
            expected=f"at least {progress.epoch} epochs", got=str(trainer.options.epochs),
        )  # fmt: skip
    if found.lost_epoch is not None:
        progress.best = None
        if trainer.finished:
            raise LoadError(
                f"the best weights of {run.folder}, of epoch {found.lost_epoch}, are lost, and no epoch remains",
                hint=run.resume_command + (f" --epochs {progress.epoch + 1}" if trainer.recipe.text else ""),
            )
    trainer.ranks.agree((), False, False)  # wait until no rank reads the files that rank 0 may now repair
    return found


def _check_options(then: TrainConfig, now: TrainConfig, what: str) -> None:
    names = [name for name, value in vars(then).items() if name not in CHANGEABLE and getattr(now, name) != value]
    if names:
        raise TrainError(
            what,
            expected=", ".join(f"{name}={getattr(then, name)!r}" for name in names),
            got=", ".join(f"{name}={getattr(now, name)!r}" for name in names),
            hint="the same options, or a new run",
        )


def _check_facts(run: Run, state: dict[str, Any], trainer: Trainer) -> None:
    """Raises TrainError if the fingerprint of the checkpoint differs from that of the trainer."""
    changed = differences_of_facts(state.get("facts", {}), trainer.facts)
    if found := [(name, then, now) for name, then, now in changed if name not in IRRELEVANT]:
        raise TrainError(
            f"{run.folder} was trained with another {found[0][0]}",
            expected=found[0][1], got=found[0][2],
            extra={"also": ", ".join(name for name, *_ in found[1:])} if found[1:] else None,
            hint="restore it; or start a new run whose model loads ox.load(best)['model']",
        )  # fmt: skip


def _start(trainer: Trainer, run: Run, show: Silent | None, loggers: Sequence[Logger] = ()) -> dict[str, Any]:
    """Trains a new run. Removes its folder if the first step fails."""
    try:
        check_first_samples(trainer)
        return _fit(trainer, run, show, loggers)
    except (Exception, SystemExit) as error:
        if trainer.progress.step == 0 and trainer.ranks.is_first and not isinstance(error, Interrupted):
            run.remove()
        raise


def _fit(
    trainer: Trainer, run: Run, show: Silent | None, loggers: Sequence[Logger] = (), found: ResumePoint | None = None
) -> dict[str, Any]:
    show, notes = show or Silent(), []
    if trainer.ranks.is_first:
        checkpoint.remove_temporary_files(run)
        if found is not None:
            checkpoint.repair(run, found)
            notes = [*found.notes(), *_changed_settings(found, trainer)]
            if changed := differences(run):
                notes.append(f"the results may differ in the last bits: {'; '.join(changed)}")
        run.restart(trainer.options)
    else:
        show = Silent()
    show.begin(trainer, run, machine.threads(), notes)
    return fit(trainer, run, show, loggers)


def _changed_settings(found: ResumePoint, trainer: Trainer) -> list[str]:
    """Messages about changed options and other differences that a resume allows."""
    then, now = TrainConfig(**found.state["options"]), trainer.options
    lines = [
        f"{name}: {getattr(then, name)} before, {getattr(now, name)} now"
        for name in CHANGEABLE
        if getattr(then, name) != getattr(now, name)
    ]
    if then.epochs != now.epochs and trainer.update.each_step:
        names = " and ".join(type(scheduler).__name__ for scheduler in trainer.update.each_step)
        lines.append(f"{names} uses {now.epochs} epochs from here on")
    before, share = len(found.state.get("ranks") or [None]), trainer.train_batches.share
    if before != share.processes:
        lines.append(f"processes: {before} before, {share.processes} now; a step stays {share}")
    changed = differences_of_facts(found.state.get("facts", {}), trainer.facts)
    return lines + [f"{name}: {was} before, {now} now" for name, was, now in changed]


def differences(run: Run) -> list[str]:
    """Changes of this machine since the run started that may change the last bits of its results."""
    found = config.versions(run.folder)
    noted = run.config["versions"]
    lines = [
        f"{name}: {noted.get(name, 'absent')} before, {found.get(name, 'absent')} now"
        for name in sorted((noted.keys() | found.keys()) - {"git", "ox"})
        if noted.get(name) != found.get(name)
    ]
    if run.config["machine"]["threads"] != machine.threads():
        lines.append(f"threads: {run.config['machine']['threads']} before, {machine.threads()} now")
    return lines


def restore(folder: str | os.PathLike[str] | Run | None = None, recipe: Recipe | None = None) -> tuple[Recipe, Any]:
    """The recipe and the model of a run with its best weights, in eval mode; the newest run by default.

    Args:
        recipe: a recipe to use instead of the copy in the run folder.

    Raises:
        LoadError: no run, no best checkpoint yet, a damaged one, or one of another architecture.
    """
    run = folder if isinstance(folder, Run) else runs.newest_run() if folder is None else runs.find(folder)
    state = checkpoint.load(run.best)
    recipe = run.recipe() if recipe is None else recipe.with_data_of(run.manifest(), "warning")
    model = recipe.model()
    load_model(model, best_weights(state), str(run.best))
    return recipe, model.eval()
