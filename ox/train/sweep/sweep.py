"""A sweep: trials of a recipe with different options, in one folder, which can be stopped and resumed.

sweeps/digits-0001/
  sweep.json       recipe, search space, metric, seed, number of trials
  study.log        the trials, Optuna's journal
  trial-0000/ ...  the run folders
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ox.errors import ArgumentError, LoadError, TrainError
from ox.train.loggers import Logger
from ox.train.metrics import metrics_of
from ox.train.recipe.recipe import Recipe, load
from ox.train.run import run as runs
from ox.train.run.loop import Interrupted
from ox.train.run.progress import Row
from ox.train.run.run import write_text
from ox.train.run.train_config import TrainConfig
from ox.train.sweep.space import Space, library, read_space
from ox.train.trainer import Trainer

FILE, JOURNAL = "sweep.json", "study.log"
TRIALS = 20  # of a sweep that names no number
UNPRUNED = 4  # trials before the first that may be pruned
STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}  # of Optuna


@dataclass(frozen=True)
class Trial:
    """One run of a sweep. `value` is the metric of its best epoch on the validation data, None where there is none;
    `error` says in one line why a failed one ended."""

    options: dict[str, Any]
    state: str  # complete, pruned or failed
    value: float | None
    epochs: int
    folder: Path
    error: str = ""


@dataclass(frozen=True)
class Sweep:
    """A folder with trials.

    Attributes:
        recipe: the name of a recipe, or the path of a recipe file.
        words: the search space, see `read_space`.
        metric: of the validation data: accuracy, loss, or one of the recipe's metrics.
        count: how many trials it should have.
    """

    folder: Path
    recipe: str
    words: tuple[str, ...]
    metric: str
    seed: int = 0
    count: int = TRIALS

    @classmethod
    def create(cls, recipe: str, words: Sequence[str], metric: str, seed: int, out: Path, count: int = TRIALS) -> Sweep:
        """A new sweep in the next folder ``<out>/<recipe>-0001``, ...

        Raises:
            RecipeError: no such recipe. ArgumentError: the search space or the metric is wrong. TrainError: the folder
            cannot be made. Nothing was written.
        """
        loaded = load(recipe)
        read_space(words, loaded)
        higher_is_better(loaded, metric)
        path = recipe if recipe == loaded.name else str(Path(recipe).resolve())
        number = 1
        while True:
            folder = out / f"{loaded.name}-{number:04d}"
            try:
                folder.mkdir(parents=True)
                break
            except FileExistsError:
                number += 1
            except OSError as error:
                raise TrainError(f"no sweep can be made in {out}", got=str(error)) from error
        sweep = cls(folder, path, tuple(words), metric, seed, count)
        sweep._write()
        return sweep

    def with_count(self, count: int) -> Sweep:
        """The same sweep with another number of trials, which is kept in its folder."""
        sweep = replace(self, count=count)
        sweep._write()
        return sweep

    def _write(self) -> None:
        content = {
            "recipe": self.recipe, "space": self.words, "metric": self.metric, "seed": self.seed, "trials": self.count
        }  # fmt: skip
        write_text(self.folder / FILE, json.dumps(content, indent=2) + "\n")

    @classmethod
    def find(cls, folder: Path) -> Sweep:
        """The sweep in a folder. Raises LoadError if there is none."""
        try:
            content = json.loads((folder / FILE).read_text())
            count = content.get("trials", TRIALS)  # older versions did not write it
            return cls(folder, content["recipe"], tuple(content["space"]), content["metric"], content["seed"], count)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LoadError(f"there is no sweep in {folder}", got=str(error), where="",
                            hint="ox sweep digits lr=1e-4..1e-1:log") from error  # fmt: skip

    def space(self) -> Space:
        return read_space(self.words, load(self.recipe))

    @property
    def maximize(self) -> bool:
        """Whether the highest value of the metric is the best."""
        return higher_is_better(load(self.recipe), self.metric)

    def best(self, trials: Sequence[Trial]) -> Trial | None:
        """The best of the trials that ran to their end; None if none did."""
        done = [trial for trial in trials if trial.state == "complete" and trial.value is not None]
        return (max if self.maximize else min)(done, key=lambda trial: trial.value or 0.0, default=None)

    def run(self, count: int, show: Callable[[Trial], None] | None = None) -> list[Trial]:
        """Runs trials one after the other until there are `count`, and returns all. A stopped one is continued first.

        Optuna chooses the options (TPE), and prunes a trial whose metric after an epoch is worse than the median of the
        others at that epoch.

        Args:
            show: called after each trial.

        Raises:
            Interrupted: Ctrl-C or SIGTERM; another call goes on. DeviceError: Optuna is not installed.
        """
        optuna = library()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        if not (self.folder / JOURNAL).exists() and any(self.folder.glob("trial-*")):
            raise TrainError(f"the trials in {self.folder} were run by Ray Tune", where="",
                             hint="ox sweep --resume SWEEP --ray ADDRESS, or a new sweep")  # fmt: skip
        study, recipe = self._study(), load(self.recipe)
        distributions = {name: part.distribution() for name, part in self.space().items()}
        self._continue_stopped(study)
        while len(self._finished(study)) < count:
            trial = study.ask(distributions)
            folder = self.folder / trial.user_attrs.setdefault("folder", f"trial-{trial.number:04d}")
            trial.set_user_attr("folder", folder.name)
            try:
                history = run_trial(self._with_data(recipe), trial.params, folder, self._pruning(trial))
                study.tell(trial, best_value(history, self.metric, self.maximize))
            except optuna.TrialPruned:
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            except Interrupted:
                raise
            except TrainError as error:  # such as a loss that is not finite
                trial.set_user_attr("error", error.one_line())
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            if show is not None:
                show(self._finished(study)[-1])
        return self._finished(study)

    def trials(self) -> list[Trial]:
        """The trials that have ended."""
        return self._finished(self._study())

    def _study(self) -> Any:
        optuna = library()
        backend = optuna.storages.journal.JournalFileBackend(str(self.folder / JOURNAL))
        study = optuna.create_study(
            storage=optuna.storages.JournalStorage(backend), study_name=self.folder.name, load_if_exists=True,
            direction="maximize" if self.maximize else "minimize",
        )  # fmt: skip
        # the state of the sampler is not stored: a resumed sweep draws other numbers
        study.sampler = optuna.samplers.TPESampler(seed=self.seed + len(study.trials))
        study.pruner = optuna.pruners.MedianPruner(n_startup_trials=UNPRUNED)
        return study

    def _with_data(self, recipe: Recipe) -> Recipe:
        """The recipe with the split of the first trial."""
        described = sorted(self.folder.glob(f"trial-*/{runs.DATA}"))
        return recipe.with_data_of(runs.find(described[0].parent).manifest()) if described else recipe

    def _pruning(self, trial: Any) -> Callable[[list[Row]], None]:
        """Tells Optuna each epoch's metric; raises TrialPruned where the trial should end."""
        reported: set[int] = set()

        def on_epoch(history: list[Row]) -> None:
            for row in history:  # of a continued trial, those before it was stopped, too
                if row["epoch"] not in reported:
                    trial.report(value_of(row, self.metric), row["epoch"])
                    reported.add(row["epoch"])
            if trial.should_prune():
                raise library().TrialPruned

        return on_epoch

    def _continue_stopped(self, study: Any) -> None:
        """Queues again what a killed or interrupted sweep has left, in the same folder."""
        state = library().trial.TrialState
        for trial in study.get_trials(states=(state.RUNNING,)):
            study.tell(trial.number, state=state.FAIL)
            study.enqueue_trial(trial.params, user_attrs={"folder": folder_of(trial)})

    def _finished(self, study: Any) -> list[Trial]:
        """The trials that have ended; of those with one folder, which were continued, the last."""
        last = {folder_of(each): each for each in study.get_trials(deepcopy=False)}
        ended = sorted((each for each in last.values() if each.state.is_finished()), key=lambda each: each.number)
        return [self._trial(each) for each in ended]

    def _trial(self, found: Any) -> Trial:
        values = list(found.intermediate_values.values())
        best = (max if self.maximize else min)(values, default=None)
        folder, error = self.folder / folder_of(found), found.user_attrs.get("error", "")
        return Trial(found.params, STATES[found.state.name], best, len(values), folder, error)


def folder_of(trial: Any) -> str:
    """The name of the run folder of a trial of Optuna."""
    return str(trial.user_attrs.get("folder") or f"trial-{trial.number:04d}")


def higher_is_better(recipe: Recipe, metric: str) -> bool:
    """Whether the highest value of a metric is the best. Raises ArgumentError if the recipe has no such metric."""
    known: dict[str, bool | None] = {"accuracy": True, "loss": False}
    known |= {each.name: each.higher_is_better for each in metrics_of(recipe.optional("metrics"))}
    numbers = {name: good for name, good in known.items() if good is not None}
    if metric not in numbers:
        raise ArgumentError(f"{recipe.name} has no metric '{metric}'", where="", expected=", ".join(numbers))
    return numbers[metric]


def value_of(row: Row, metric: str) -> float:
    """The metric on the validation data in the row of an epoch. Raises ArgumentError if there is none."""
    value = row.get(f"validation_{metric}")
    if value is None:
        raise ArgumentError(f"the validation data give no {metric}", where="", got=", ".join(row),
                            hint="--metric loss; a sweep needs validation data")  # fmt: skip
    return float(value)


def best_value(history: Sequence[Row], metric: str, maximize: bool) -> float:
    """The metric of the best epoch."""
    return (max if maximize else min)(value_of(row, metric) for row in history)


def run_trial(
    recipe: Recipe, options: Mapping[str, Any], folder: Path, on_epoch: Callable[[list[Row]], None]
) -> list[Row]:
    """Trains a recipe with these options in a run folder, or the rest of the run that is there.

    Args:
        on_epoch: called after each epoch with the rows of all epochs; it may raise an exception to end the run.

    Returns:
        the rows of all epochs.
    """
    if (folder / "config.toml").is_file():
        recipe = recipe.with_data_as(runs.find(folder).recipe())
    # all trials have the same data, also those of another seed
    recipe = recipe.seeded(recipe.defaults["seed"])
    trainer = Trainer(recipe, TrainConfig.from_defaults(recipe.defaults, **options))
    trainer.fit(folder, resume=True, loggers=[EachEpoch(lambda: on_epoch(trainer.progress.history))])
    return trainer.progress.history


class EachEpoch(Logger):
    """Calls a function after each epoch."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call

    def epoch(self, values: dict[str, Any]) -> None:
        self.call()
