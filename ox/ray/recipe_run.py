"""`ox train RECIPE --ray ADDRESS`: a recipe on the workers of a Ray cluster."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorDiedError
from ray.train import CheckpointConfig, FailureConfig, Result, RunConfig, ScalingConfig, TrainingFailedError

from ox.errors import DistributedError, TrainError
from ox.ray.checkpoints import fit, remove_left_folders
from ox.ray.cluster import connect
from ox.ray.trainer import OxTrainer
from ox.train.display import Terminal
from ox.train.recipe import recipe as recipes
from ox.train.recipe.recipe import Recipe
from ox.train.run import run as runs
from ox.train.run.run import Run
from ox.train.run.train_config import TrainConfig
from ox.train.trainer import Trainer

STORAGE = "ray"  # the folder with Ray's storage in the folder of a run that is not finished
KEEP = 2  # checkpoints in Ray's storage


class WorkerTerminal(Terminal):
    """Prints the run folder of the driver, for that of the worker is gone after the run."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def begin(self, trainer: Trainer, run: Run, threads: int, notes: list[str]) -> None:
        super().begin(trainer, Run(self.folder, run.config), threads, notes)

    def finished(self, trainer: Trainer, run: Run | None, result: dict[str, Any]) -> None:
        super().finished(trainer, run and Run(self.folder, run.config), result)


class Stopped(TrainError):
    """Ctrl-C: the run can be resumed from its newest checkpoint in Ray's storage."""

    exit_code = 130

    def __init__(self, run: Run, address: str) -> None:
        super().__init__("stopped", where="", hint=f"ox train --resume {run.folder} --ray {address}")


def train(
    recipe: Recipe | str | os.PathLike[str],
    address: str,
    *,
    out: str | os.PathLike[str] = "runs",
    nproc: int = 1,
    restarts: int = 0,
    **options: Any,
) -> Run:
    """Trains a recipe on workers of Ray, in a new run folder under `out`. As `ox.train.train`.

    The workers load the recipe's data themselves. On several machines, `out` must be a folder that they share, as Ray
    requires it of a path that is no cloud storage.

    Args:
        address: of the cluster, see `ox.ray.cluster.connect`.
        nproc: the number of workers, each one process.
        restarts: how often Ray starts them again from the newest checkpoint after one has failed.
        options: fields of `TrainConfig`. Ray reserves `threads` CPUs for each worker; default: one.

    Raises:
        RecipeError, ArgumentError, DistributedError: nothing was written. There is no cluster at `address`, or the one
            in this machine's memory is too small.
        TrainError: the workers failed more than `restarts` times, or Ctrl-C (`Stopped`); `resume` continues the run.
    """
    recipe = recipe if isinstance(recipe, Recipe) else recipes.load(recipe)
    config = TrainConfig.from_defaults(recipe.defaults, **options)
    connect(address)
    _check_cpus(address, nproc * (config.threads or 1))
    return _run(runs.create(recipe, config, out, nproc), recipe, config, address, nproc, restarts)


def resume(folder: str | os.PathLike[str], address: str, *, nproc: int | None = None, restarts: int = 0) -> Run:
    """Continues a run of `train` that was stopped, from the newest checkpoint in Ray's storage.

    Raises:
        LoadError: no run. TrainError: the run was not begun on Ray, or what `train` raises.
    """
    run = runs.find(folder)
    if not (run.folder / STORAGE).is_dir():
        if run.result is not None:
            return run
        raise TrainError(f"{run.folder} was not begun with --ray", hint=f"ox train --resume {run.folder}")
    connect(address)
    count = nproc or run.config["machine"].get("processes", 1)
    return _run(run, run.recipe(), run.options, address, count, restarts)


def _run(run: Run, recipe: Recipe, options: TrainConfig, address: str, nproc: int, restarts: int) -> Run:
    storage = run.folder.resolve() / STORAGE
    trainer = OxTrainer(
        _work,
        train_loop_config={
            "name": recipe.name, "text": recipe.text, "path": str(recipe.path.resolve()),
            "options": options.to_table(), "folder": str(run.folder),
            "data": {
                "data_seed": recipe.data_seed, "data_after_model": recipe.data_after_model,
                "random_stream": recipe.random_stream,
            },
        },
        scaling_config=ScalingConfig(
            num_workers=nproc,
            use_gpu=options.device.startswith("cuda"),
            resources_per_worker=None if options.threads is None else {"CPU": options.threads},
        ),
        run_config=RunConfig(
            name=run.name,
            storage_path=str(storage),
            failure_config=FailureConfig(max_failures=restarts),
            checkpoint_config=CheckpointConfig(num_to_keep=KEEP),
        ),
    )  # fmt: skip
    try:
        trainer.fit()
    except TrainingFailedError as error:
        raise TrainError(
            "the workers failed", where="", got=_reason(error),
            hint=f"ox train --resume {run.folder} --ray {address}; --max-restarts N restarts them",
        ) from error  # fmt: skip
    except (KeyboardInterrupt, SystemExit) as stop:  # Ray's handler of Ctrl-C ends the workers, and exits
        raise Stopped(run, address) from stop
    finally:
        _collect(run, storage)
        remove_left_folders()
    shutil.rmtree(storage, ignore_errors=True)
    return runs.find(run.folder)


def _check_cpus(address: str, needed: int) -> None:
    """Raises DistributedError where a cluster in this machine's memory is too small: Ray would wait for machines."""
    there = int(ray.cluster_resources().get("CPU", 0))
    if address == "local" and there < needed:
        raise DistributedError("this machine has too few CPUs for the workers", where="", got=f"{there} CPUs",
                               expected=f"{needed}: those of --nproc, times --threads")  # fmt: skip


def _collect(run: Run, storage: Path) -> None:
    """Copies the newest checkpoint, which is a run folder, to the folder of the run."""
    try:
        newest = Result.from_path(str(storage / run.name)).checkpoint
    except RuntimeError:  # nothing was reported
        return
    if newest is not None:
        newest.to_directory(run.folder)


def _reason(error: TrainingFailedError) -> str:
    """What happened to each worker that failed; else to Ray's controller."""
    failures = getattr(error, "worker_failures", None) or {}
    # what Ray's health check met, rather than that it failed
    causes = {rank: getattr(failure, "health_check_failure", failure) for rank, failure in failures.items()}
    found = [f"rank {rank}: {one_line(cause)}" for rank, cause in sorted(causes.items())]
    return "; ".join(found) or one_line(getattr(error, "controller_failure", error))


def one_line(error: BaseException) -> str:
    """The first line of the last exception in a traceback; without one, that of the error."""
    if isinstance(error, ActorDiedError):
        return "its process has ended: it was killed, the machine had no memory left, or its node is gone"
    text = str(error).strip()
    raised = re.findall(r"^(?:[\w.]+\.)?(\w+: .+)$", text, re.MULTILINE)
    return (raised[-1] if raised else f"{type(error).__name__}: {text}").partition("\n")[0][:300]


def _work(config: dict[str, Any]) -> None:
    """Trains on a worker."""
    trainer = Trainer(replace(recipe_of(**config), **config["data"]), TrainConfig(**config["options"]))
    fit(trainer, show=WorkerTerminal(Path(config["folder"])))


def recipe_of(name: str, text: str, path: str, **_: Any) -> Recipe:
    """The recipe of the driver: its file if it is the same on this machine, else a copy."""
    original = Path(path)
    if not original.is_file() or original.read_text(encoding="utf-8") != text:
        copy = Path(ray.get_runtime_context().get_worker_id(), f"{name}.py")
        copy.parent.mkdir(exist_ok=True)  # in the working directory, which Ray has made
        copy.write_text(text, encoding="utf-8")
        original = copy
    return recipes.read(original, name, [Path(path).parent])
