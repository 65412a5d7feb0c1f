"""The run of a recipe from its first step to its last, through kills and Ctrl-C."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ox.errors import TrainError
from ox.train import checkpoint
from ox.train.loggers import JSONL, Logger, Loggers, TensorBoard
from ox.train.run import Run
from ox.train.show import Silent, percent
from ox.train.trainer import Trainer
from ox.train.weights import best_weights, load_model

LINES_AN_EPOCH = 50  # in metrics.jsonl, at most about so many


class Interrupted(TrainError):
    """Ctrl-C or a polite kill: the run was checkpointed and can go on."""

    def __init__(self, run: Run, trainer: Trainer, number: int) -> None:
        super().__init__(
            f"stopped in epoch {min(trainer.progress.epoch + 1, trainer.options.epochs)}, "
            f"after step {trainer.progress.step} of {trainer.steps}; everything is in {run.last}",
            hint=f"ox train --resume {run.folder}",
        )
        self.exit_code = 128 + number


def fit(trainer: Trainer, run: Run, show: Silent | None = None) -> dict[str, Any]:
    """Train until the last epoch, evaluate the best weights once on what was held back, draw the curves.

    Returns:
        what result.json holds: the best epoch's row, and loss and accuracy on the held-back part.

    Raises:
        Interrupted: Ctrl-C or SIGTERM; a checkpoint was written.
        TrainError: a loss that is not finite, or a disk that refuses.
    """
    show = show or Silent()
    progress = trainer.progress
    with _signals() as asked, _loggers(run, progress.step) as log, show:
        if not run.last.is_file():  # a kill within the first epoch leaves something to go on from, too
            checkpoint.save(run, trainer.state_dict())
        while not trainer.finished:
            _epoch(trainer, run, log, show, asked)
            if asked and not trainer.finished:
                raise Interrupted(run, trainer, asked[0])
    result = _finish(trainer, run)
    show.finished(trainer, run, result)
    return result


def _epoch(trainer: Trainer, run: Run, log: Logger, show: Silent, asked: list[int]) -> None:
    """What is left of one epoch, its validation and its checkpoint."""
    progress, every = trainer.progress, max(1, trainer.steps_an_epoch // LINES_AN_EPOCH)
    began, saved, counted = time.perf_counter(), time.monotonic(), progress.running.count
    before, last_step = progress.seconds, (progress.epoch + 1) * trainer.steps_an_epoch
    show.epoch(trainer)
    for batches in trainer.groups():
        loss = trainer.step(*batches)
        progress.seconds = before + time.perf_counter() - began
        if progress.step % every == 0 or progress.step == last_step:
            log.step({"step": progress.step, "epoch": progress.epoch + 1, "loss": loss, "lr": trainer.lr})
        show.step(trainer, (progress.running.count - counted) / (time.perf_counter() - began))
        # after the last batch the epoch's own checkpoint follows at once
        if progress.step < last_step and (asked or time.monotonic() - saved >= trainer.options.checkpoint_every):
            log.flush()
            checkpoint.save(run, trainer.state_dict())
            saved = time.monotonic()
            if asked:
                raise Interrupted(run, trainer, asked[0])
    rate = (progress.running.count - counted) / max(time.perf_counter() - began, 1e-9)
    row = trainer.close_epoch(rate)
    progress.seconds = before + time.perf_counter() - began
    log.epoch(row)
    log.flush()
    checkpoint.save(run, trainer.state_dict(), best=progress.best is row)
    show.row(trainer, row)


def _finish(trainer: Trainer, run: Run) -> dict[str, Any]:
    """Evaluate the best weights on the held-back part, for the first and only time, and draw the curves."""
    from ox.train import curves

    progress, best = trainer.progress, trainer.progress.best
    assert best is not None
    load_model(trainer.update.evaluated, best_weights(checkpoint.load(run.best)), str(run.best))
    held_back = trainer.evaluate(trainer.data.held_back) if trainer.data.held_back is not None else None
    result: dict[str, Any] = {
        "best": progress.best,
        "epochs": progress.epoch,
        "held_back": held_back.to_table() if held_back else None,
        "seconds": progress.seconds,
    }
    sample = trainer.sample()
    if sample is not None:
        result["sample"] = sample
    subtitle = "" if held_back is None or held_back.accuracy is None else f"held back {percent(held_back.accuracy)}"
    curves.draw(run.curves, progress.history, best, run.name, subtitle)
    run.finish(result)
    return result


def _loggers(run: Run, step: int) -> Logger:
    """What a run's folder keeps."""
    return Loggers([JSONL(run.metrics, step), TensorBoard(run.folder, step)])


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collects SIGINT and SIGTERM in a list that is looked at between steps; the second Ctrl-C stops at once."""
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # only there can Python handle signals
        yield asked
        return

    def note(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
