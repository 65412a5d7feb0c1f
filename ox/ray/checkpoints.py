"""`Trainer.fit` in a worker of Ray Train: checkpoints go to Ray's storage, and the run goes on from there."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import ray.train
from ray.train import Checkpoint

from ox import temporary_files
from ox.train.display import Silent
from ox.train.trainer import Trainer

FOLDER = "ox-ray-"  # a worker's own folder, in the system's folder for temporary files
# Ray's storage itself has the checkpoints before the last; another thread may be writing the next one, to a file of a
# temporary name that is gone the moment after
LEFT_OUT = shutil.ignore_patterns("last-*.safetensors", ".training", temporary_files.PATTERN)


def fit(trainer: Trainer, *, show: Silent | None = None) -> dict[str, Any]:
    """Trains all epochs in a worker of `OxTrainer`, or the rest of them after a restart. Every worker calls it.

    Each checkpoint of the run (one after each epoch, and one every `checkpoint_every` seconds) is reported to Ray with
    the metrics of the last epoch. A checkpoint is the whole run folder: what `ox train` writes. So the machines need
    not share a folder; `result.checkpoint.to_directory("runs/mine")` is a run for `ox export`.

    When Ray announces that it takes a worker's node away (a spot instance is reclaimed, a node is drained), a
    checkpoint follows after the next step.

    Args:
        trainer: a trainer that has not begun.
        show: prints the progress, on rank 0; None: no output.

    Returns:
        what `Trainer.fit` returns.

    Raises:
        what `Trainer.fit` raises.
    """
    name = ray.train.get_context().get_experiment_name()
    with temporary_files.folder(FOLDER) as place:
        folder = Path(place, name)
        if (begun := ray.train.get_checkpoint()) is not None:
            begun.to_directory(folder)

        def report() -> None:
            if trainer.progress.step:  # a run without a step begins anew
                _report(trainer, folder, progress(trainer))

        trainer.on_checkpoint, trainer.checkpoint_wanted = report, PreemptionNotices()
        result = trainer.fit(folder, resume=True, show=show)
        _report(trainer, folder, {**progress(trainer), **_test_set(result)})
    return result


class PreemptionNotices:
    """Called after each step: whether Ray has announced the end of a node of this run since the last call.

    It looks at what the worker was told. `ray.train.get_preemption_info` waits for all workers in each call; here, the
    trainer's ranks agree by themselves.
    """

    def __init__(self) -> None:
        self._seen: Any = None

    def __call__(self) -> bool:
        seen, self._seen = self._seen, _notice()
        return self._seen is not None and self._seen != seen


def _notice() -> Any:
    """The `ray.train.PreemptionInfo` of this worker; None without one, outside a worker, and in a Ray without them."""
    from ray.train.v2._internal.execution import context

    try:
        return context.get_train_context().preemption_context.preemption_info
    except (RuntimeError, AttributeError):
        return None


def remove_left_folders() -> None:
    """Removes the folders of workers on this machine that were killed: Ray kills them after Ctrl-C and a failure."""
    temporary_files.remove_abandoned(Path(gettempdir()), re.compile(re.escape(FOLDER) + ".*"))


def _report(trainer: Trainer, folder: Path, metrics: dict[str, Any]) -> None:
    """Reports metrics and, from rank 0, the run folder. Ray waits here for all workers."""
    if not trainer.ranks.is_first:
        ray.train.report(metrics)
        return
    with TemporaryDirectory(dir=folder.parent) as place:
        copy = shutil.copytree(folder, Path(place, folder.name), copy_function=os.link, ignore=LEFT_OUT)
        ray.train.report(metrics, checkpoint=Checkpoint.from_directory(copy))


def progress(trainer: Trainer) -> dict[str, Any]:
    """The metrics of the last epoch, as in metrics.jsonl, at the step that the trainer has reached."""
    done, history = trainer.progress, trainer.progress.history
    row = {**(history[-1] if history else {}), "epoch": done.epoch, "step": done.step}
    return {name: value for name, value in row.items() if value is not None}


def _test_set(result: dict[str, Any]) -> dict[str, Any]:
    """The metrics on the test set, as ``test_accuracy``."""
    return {f"test_{name}": value for name, value in (result["held_back"] or {}).items() if isinstance(value, float)}
