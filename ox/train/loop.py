"""The run of a recipe from its first step to its last, through kills and Ctrl-C."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, NoReturn

from ox.errors import TrainError
from ox.train.evaluate import Result
from ox.train.keeper import Bystander, Checkpoints, Keeper
from ox.train.loggers import JSONL, Logger, Loggers, TensorBoard
from ox.train.run import Run
from ox.train.show import Silent, of, percent
from ox.train.trainer import Trainer
from ox.train.weights import best_weights, load_model

LINES_AN_EPOCH = 50  # in metrics.jsonl, at most about so many
LINES_EVERY = 10  # steps, where nobody knows how many an epoch has


class Interrupted(TrainError):
    """Ctrl-C or a polite kill: the run was checkpointed and can go on."""

    def __init__(self, run: Run, trainer: Trainer, number: int) -> None:
        super().__init__(
            f"stopped in epoch {min(trainer.progress.epoch + 1, trainer.options.epochs)}, "
            f"after step {of(trainer.progress.step, trainer.steps)}; everything is in {run.last}",
            hint=f"ox train --resume {run.folder}",
        )
        self.exit_code = 128 + number


def fit(
    trainer: Trainer, run: Run | None = None, show: Silent | None = None, loggers: Sequence[Logger] = ()
) -> dict[str, Any]:
    """Train until the last epoch, evaluate the best weights once on what was held back, draw the curves.

    Args:
        run: where checkpoints, figures and curves are kept; None keeps the best weights in memory and nothing else.
        loggers: told besides the run's own.

    Returns:
        what result.json holds: the best epoch's row, and loss and accuracy on the held-back part.

    Raises:
        Interrupted: Ctrl-C or SIGTERM; a checkpoint was written. (Without a run Ctrl-C is KeyboardInterrupt.)
        TrainError: a loss that is not finite, a sample that the model cannot take, or a disk that refuses.
    """
    team, progress = trainer.team, trainer.progress
    show = show if show is not None and team.first else Silent()
    logs = _logs(run if team.first else None, progress.step, loggers if team.first else ())
    with (
        _signals(run is not None) as asked,
        logs as log,
        show,
        _keeper(run, trainer) as keeper,
        closing(trainer.feed),
    ):
        # a kill within the first epoch leaves something to go on from
        if run is not None and team.told(not run.last.is_file()):
            keeper.save(trainer.state_dict())
        while not trainer.finished:
            _epoch(trainer, keeper, log, show, asked)
            number, _ = team.decide(asked, False)
            if number and not trainer.finished:
                _stop(trainer, keeper, number)
        result = _finish(trainer, keeper)
    show.finished(trainer, run, result)
    return result


def _stop(trainer: Trainer, keeper: Keeper, number: int) -> NoReturn:
    """End here: the checkpoint is complete before anybody is told that there is one."""
    keeper.wait()
    assert keeper.run is not None, "signals are handled for the sake of a run"
    raise Interrupted(keeper.run, trainer, number)


def _epoch(trainer: Trainer, keeper: Keeper, log: Logger, show: Silent, asked: list[int]) -> None:
    """What is left of one epoch, its validation and its checkpoint."""
    progress, steps = trainer.progress, trainer.feed.steps
    every = LINES_EVERY if steps is None else max(1, steps // LINES_AN_EPOCH)
    began, saved, counted = time.perf_counter(), time.monotonic(), progress.running.count
    before, last_step = progress.seconds, last_of(trainer)
    show.epoch(trainer)
    for batches in trainer.groups():
        loss = trainer.step(*batches)
        progress.seconds = before + time.perf_counter() - began
        if progress.step % every == 0 or progress.step == last_step:
            log.step({"step": progress.step, "epoch": progress.epoch + 1, "loss": loss, "lr": trainer.lr})
        show.step(trainer, trainer.team.size * (progress.running.count - counted) / (time.perf_counter() - began))
        number, due = trainer.team.decide(asked, time.monotonic() - saved >= trainer.options.checkpoint_every)
        # after the last batch the epoch's own checkpoint follows at once
        if progress.step != last_step and (number or due):
            log.flush()
            if keeper.save(trainer.state_dict(), wait=bool(number)):
                saved = time.monotonic()
            if number:
                _stop(trainer, keeper, number)
    if not progress.running.count:
        raise TrainError("the training data gave no batch", where=f"epoch {progress.epoch + 1}")
    rate = (progress.running.count - counted) / max(time.perf_counter() - began, 1e-9)
    row = trainer.close_epoch(rate)
    progress.seconds = before + time.perf_counter() - began
    log.epoch(row)
    log.flush()
    keeper.save(trainer.state_dict(), best=progress.best is row)
    show.row(trainer, row)


def last_of(trainer: Trainer) -> int | None:
    """The step that ends this epoch; None where only the end of a stream says."""
    each, most = trainer.feed.steps, trainer.options.max_steps
    if each is None:
        return most
    end = (trainer.progress.epoch + 1) * each
    return end if most is None else min(end, most)


def _finish(trainer: Trainer, keeper: Keeper) -> dict[str, Any]:
    """Evaluate the best weights on the held-back part, for the first and only time, and draw the curves."""
    progress, best, run = trainer.progress, trainer.progress.best, keeper.run
    assert best is not None
    if trainer.team.first:
        load_model(trainer.model, best_weights(keeper.best()), None if run is None else str(run.best))
    trainer.team.follow(trainer.model)
    trainer.model.eval()
    part = trainer.data.held_back
    held_back = None if part is None else trainer.evaluate(part, trainer.model)
    result: dict[str, Any] = {
        "best": best,
        "epochs": progress.epoch,
        "steps": progress.step,
        "held_back": None if held_back is None else held_back.to_table(),
        "seconds": progress.seconds,
    }
    sample = trainer.sample(trainer.model)
    if sample is not None:
        result["sample"] = sample
    if run is not None and trainer.team.first:
        _draw(trainer, run, best, held_back)
        run.finish(result)
    return result


def _draw(trainer: Trainer, run: Run, best: dict[str, Any], held_back: Result | None) -> None:
    """The curves, with what was predicted over what is true where the model foretells numbers."""
    from ox.train import curves, predictions

    subtitle, found = "", None
    name, part = list(trainer.data.parts().items())[-1]
    if held_back is not None:
        right = held_back.accuracy
        subtitle = f"held back {percent(right)}" if right is not None else f"held back: loss {held_back.loss:.4g}"
    if name != "train" and (held_back is None or held_back.accuracy is None) and best["validation_accuracy"] is None:
        found = predictions.predict(trainer, trainer.model, part, name)
    curves.draw(run.curves, trainer.progress.history, best, run.name, subtitle, found)


def _keeper(run: Run | None, trainer: Trainer) -> Keeper:
    if run is None:
        return Keeper()
    return Checkpoints(run, trainer.options.keep) if trainer.team.first else Bystander(run)


def _logs(run: Run | None, step: int, loggers: Sequence[Logger]) -> Logger:
    """What a run's folder keeps, and the caller's own."""
    own = [] if run is None else [JSONL(run.metrics, step), TensorBoard(run.folder, step)]
    return Loggers([*own, *loggers])


@contextmanager
def _signals(wanted: bool) -> Iterator[list[int]]:
    """Collects SIGINT and SIGTERM in a list that is looked at between steps; the second Ctrl-C stops at once."""
    asked: list[int] = []
    # only in the main thread can Python handle signals
    if not wanted or threading.current_thread() is not threading.main_thread():
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
