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
from ox.train.metrics import Metrics
from ox.train.run import Run
from ox.train.show import Silent, percent
from ox.train.trainer import Trainer, load_model

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
    options, progress = trainer.options, trainer.progress
    with _signals() as asked, Metrics(run, progress.step) as metrics, show:
        if not run.last.is_file():  # a kill within the first epoch leaves something to go on from, too
            checkpoint.save(run, trainer.state_dict())
        while progress.epoch < options.epochs:
            _epoch(trainer, run, metrics, show, asked)
            if asked and progress.epoch < options.epochs:
                raise Interrupted(run, trainer, asked[0])
    result = _finish(trainer, run)
    show.finished(trainer, run, result)
    return result


def _epoch(trainer: Trainer, run: Run, metrics: Metrics, show: Silent, asked: list[int]) -> None:
    """What is left of one epoch, its validation and its checkpoint."""
    progress, every = trainer.progress, max(1, len(trainer.loader) // LINES_AN_EPOCH)
    began, saved, counted = time.perf_counter(), time.monotonic(), progress.running.count
    before, last_step = progress.seconds, (progress.epoch + 1) * len(trainer.loader)
    show.epoch(trainer)
    for batch in trainer.batches():
        loss = trainer.step(batch)
        progress.seconds = before + time.perf_counter() - began
        if progress.step % every == 0 or progress.step == last_step:
            metrics.step({"step": progress.step, "epoch": progress.epoch + 1, "loss": loss, "lr": trainer.lr})
        show.step(trainer, (progress.running.count - counted) / (time.perf_counter() - began))
        # after the last batch the epoch's own checkpoint follows at once
        if progress.step < last_step and (asked or time.monotonic() - saved >= trainer.options.checkpoint_every):
            metrics.flush()
            checkpoint.save(run, trainer.state_dict())
            saved = time.monotonic()
            if asked:
                raise Interrupted(run, trainer, asked[0])
    rate = (progress.running.count - counted) / max(time.perf_counter() - began, 1e-9)
    row = trainer.close_epoch(rate)
    progress.seconds = before + time.perf_counter() - began
    metrics.epoch(row)
    metrics.flush()
    checkpoint.save(run, trainer.state_dict(), best=progress.best is row)
    show.row(trainer, row)


def _finish(trainer: Trainer, run: Run) -> dict[str, Any]:
    """Evaluate the best weights on the held-back part, for the first and only time, and draw the curves."""
    from ox.train import curves

    progress = trainer.progress
    load_model(trainer.model, checkpoint.load(run.best)["model"], str(run.best))
    held_back = trainer.evaluate(trainer.data.held_back) if trainer.data.held_back is not None else None
    result = {
        "best": progress.best,
        "held_back": held_back.to_table() if held_back else None,
        "seconds": progress.seconds,
    }
    subtitle = "" if held_back is None or held_back.accuracy is None else f"held back {percent(held_back.accuracy)}"
    curves.draw(run.curves, progress.history, run.name, subtitle)
    run.finish(result)
    return result


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
