"""`ox sweep --ray ADDRESS`: a sweep on Ray Tune, with trials in parallel on the machines of a cluster."""

from __future__ import annotations

import shutil
import sys
from math import inf
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.schedulers import MedianStoppingRule
from ray.tune.search.optuna import OptunaSearch

from ox.errors import TrainError
from ox.ray.checkpoints import LEFT_OUT
from ox.ray.cluster import connect
from ox.ray.recipe_run import one_line, recipe_of
from ox.train.recipe.recipe import load
from ox.train.run.progress import Row
from ox.train.sweep import Sweep, Trial
from ox.train.sweep.sweep import UNPRUNED, best_value, run_trial, value_of

STORAGE = "ray"  # Ray's folder in that of the sweep
METRIC = "value"


def run(sweep: Sweep, address: str, count: int) -> list[Trial]:
    """Runs `count` trials on a cluster, or the rest of a sweep that was stopped there, and returns all.

    As `Sweep.run`: the same search space and the same search (Optuna's TPE, by Ray's `OptunaSearch`). Trials are pruned
    by Ray's `MedianStoppingRule`. On several machines, the folder of the sweep must be one that they share.

    Args:
        address: of the cluster, see `ox.ray.cluster.connect`.

    Raises:
        DistributedError: there is no cluster at `address`. DeviceError: Optuna is not installed.
    """
    distributions = {name: part.distribution() for name, part in sweep.space().items()}
    recipe = load(sweep.recipe)
    connect(address)
    mode = "max" if sweep.maximize else "min"
    fixed = {"name": recipe.name, "text": recipe.text, "path": str(recipe.path.resolve())}
    command = list(sys.argv)
    work = tune.with_parameters(_work, recipe=fixed, metric=sweep.metric, maximize=sweep.maximize, command=command)
    storage = sweep.folder.resolve() / STORAGE
    if tune.Tuner.can_restore(str(storage / sweep.folder.name)):
        tuner = tune.Tuner.restore(str(storage / sweep.folder.name), trainable=work, resume_errored=True)
    elif any(sweep.folder.glob("trial-*")):
        raise TrainError(f"Ray Tune does not know the trials in {sweep.folder}", where="",
                         hint="ox sweep --resume without --ray, or a new sweep")  # fmt: skip
    else:
        tuner = tune.Tuner(
            work,
            tune_config=tune.TuneConfig(
                num_samples=count,
                search_alg=OptunaSearch(distributions, metric=METRIC, mode=mode, seed=sweep.seed),
                scheduler=MedianStoppingRule(
                    time_attr="epoch",
                    metric=METRIC,
                    mode=mode,
                    grace_period=1,
                    min_samples_required=UNPRUNED,
                    min_time_slice=inf,  # it pauses no trial in favour of another
                ),
            ),
            run_config=tune.RunConfig(
                name=sweep.folder.name,
                storage_path=str(storage),
                failure_config=tune.FailureConfig(max_failures=1),
                verbose=1,
            ),
        )
    results = tuner.fit()
    trials = [_trial(sweep, number, result) for number, result in enumerate(results)]
    if not results.errors:
        shutil.rmtree(storage, ignore_errors=True)
    return trials


def _trial(sweep: Sweep, number: int, result: Any) -> Trial:
    """A trial with its run folder, which is copied from Ray's storage."""
    folder = sweep.folder / f"trial-{number:04d}"
    if result.checkpoint is not None:
        result.checkpoint.to_directory(folder)
    metrics = result.metrics or {}
    state = "failed" if result.error else "complete" if metrics.get("finished") else "pruned"
    error = one_line(result.error) if result.error else ""
    return Trial(dict(result.config), state, metrics.get("best"), metrics.get("epoch", 0), folder, error)


def _work(options: dict[str, Any], recipe: dict[str, str], metric: str, maximize: bool, command: list[str]) -> None:
    """A trial, on a worker. Each epoch is reported with the run folder; so a trial goes on after a failure."""
    sys.argv[:] = command  # config.toml names it
    folder = Path("run").resolve()  # in the working directory of the trial
    if (begun := tune.get_checkpoint()) is not None:
        begun.to_directory(folder)

    def report(history: list[Row], finished: bool = False) -> None:
        copy = folder.with_name("copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy, ignore=LEFT_OUT)
        row = {name: value for name, value in history[-1].items() if value is not None}
        figures = {METRIC: value_of(row, metric), "best": best_value(history, metric, maximize), "finished": finished}
        tune.report({**row, **figures}, checkpoint=tune.Checkpoint.from_directory(copy))

    history = run_trial(recipe_of(**recipe), options, folder, report)
    report(history, finished=True)
