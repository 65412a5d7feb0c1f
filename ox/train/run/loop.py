"""The training loop of a run: epochs, checkpoints, logging, signals and the final evaluation."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ox.distributed.signals import handle_signals
from ox.errors import TrainError
from ox.train.display import Silent, of, percent
from ox.train.evaluation import Result
from ox.train.loggers import JSONL, Logger, Loggers, TensorBoard
from ox.train.run.checkpoint_writer import Checkpoints, CheckpointWriter, NoCheckpoints
from ox.train.run.run import Run
from ox.train.trainer import Trainer
from ox.train.weights import best_weights, load_model

LINES_AN_EPOCH = 50  # the approximate maximum in metrics.jsonl
LINES_EVERY = 10  # steps, if the length of an epoch is unknown


class Interrupted(TrainError):
    """Ctrl-C, SIGTERM or SIGHUP: a checkpoint was written, and the run can be resumed."""

    def __init__(self, run: Run, trainer: Trainer, number: int) -> None:
        super().__init__(
            f"stopped in epoch {min(trainer.progress.epoch + 1, trainer.options.epochs)}, "
            f"after step {of(trainer.progress.step, trainer.steps)}; checkpoint written to {run.last}",
            hint=run.resume_command,
        )
        self.exit_code = 128 + number


def fit(
    trainer: Trainer, run: Run | None = None, show: Silent | None = None, loggers: Sequence[Logger] = ()
) -> dict[str, Any]:
    """Trains until the last epoch, evaluates the best weights once on the test set and draws the curves.

    Args:
        run: the run folder for checkpoints, metrics and curves; None: only the best weights are kept, in memory.
        loggers: additional loggers, besides those of the run.

    Returns:
        the content of result.json: the best epoch's row, and loss and accuracy on the test set.

    Raises:
        Interrupted: Ctrl-C, SIGTERM or SIGHUP; a checkpoint was written. (Without a run Ctrl-C is KeyboardInterrupt.)
        TrainError: a loss that is not finite, a sample that the model cannot process, or a file that cannot be written.
    """
    ranks, progress = trainer.ranks, trainer.progress
    show = show if show is not None and ranks.is_first else Silent()
    logs = _run_loggers(run if ranks.is_first else None, progress.step, loggers if ranks.is_first else ())
    with (
        _collect_signals(run is not None) as signals,
        logs as log,
        show,
        _checkpoint_writer(run, trainer) as writer,
        closing(trainer.train_batches),
    ):
        # after another `fit`, the model has the best weights so far
        has_best = progress.best is not None and progress.best["step"] == progress.step
        # so that a run killed in its first epoch can be resumed
        if has_best if run is None else ranks.broadcast(not run.last.is_file()):
            _save(trainer, writer, best=has_best)
        while not trainer.finished:
            _epoch(trainer, writer, log, show, signals)
            number, *_ = ranks.agree(signals.stop, False, False)
            if number and not trainer.finished:
                _stop(trainer, writer, number)
        result = _finish(trainer, writer)
    show.finished(trainer, run, result)
    return result


def _stop(trainer: Trainer, writer: CheckpointWriter, number: int) -> NoReturn:
    """Waits for the checkpoint and raises Interrupted."""
    writer.wait()
    assert writer.run is not None, "signals are handled only for a run"
    raise Interrupted(writer.run, trainer, number)


def _epoch(trainer: Trainer, writer: CheckpointWriter, log: Logger, show: Silent, signals: Signals) -> None:
    """The rest of an epoch, its validation and its checkpoint."""
    progress, steps = trainer.progress, trainer.train_batches.steps
    every = LINES_EVERY if steps is None else max(1, steps // LINES_AN_EPOCH)
    began, saved, counted = time.perf_counter(), time.monotonic(), progress.running.count
    before, last_step = progress.seconds, last_step_of_epoch(trainer)
    show.epoch(trainer)
    for batches in trainer.groups():
        loss = trainer.step(*batches)
        progress.seconds = before + time.perf_counter() - began
        if progress.step % every == 0 or progress.step == last_step:
            log.step({"step": progress.step, "epoch": progress.epoch + 1, "loss": loss, "lr": trainer.lr})
        show.step(trainer, trainer.ranks.size * (progress.running.count - counted) / (time.perf_counter() - began))
        due = time.monotonic() - saved >= trainer.options.checkpoint_every
        wanted = signals.checkpoint or (trainer.checkpoint_wanted is not None and trainer.checkpoint_wanted())
        number, due, wanted = trainer.ranks.agree(signals.stop, due, wanted)
        if wanted:
            signals.checkpoint = False
        # after the last step, the checkpoint of the epoch follows immediately
        if progress.step != last_step and (number or due or wanted):
            log.flush()
            if _save(trainer, writer, wait=bool(number) or wanted):
                saved = time.monotonic()
            if wanted:  # the end may be near
                writer.wait()
            if number:
                _stop(trainer, writer, number)
    if not progress.running.count:
        raise TrainError("the training data gave no batch", where=f"epoch {progress.epoch + 1}")
    rate = (progress.running.count - counted) / max(time.perf_counter() - began, 1e-9)
    row = trainer.close_epoch(rate)
    progress.seconds = before + time.perf_counter() - began
    log.epoch(row)
    log.flush()
    _save(trainer, writer, best=progress.best is row)
    show.row(trainer, row)


def _save(trainer: Trainer, writer: CheckpointWriter, best: bool = False, wait: bool = True) -> bool:
    """Saves a checkpoint, on all ranks at the same step. Returns whether it was saved."""
    saved = writer.save(trainer.state_dict(), best=best, wait=wait)
    if trainer.on_checkpoint is not None:
        writer.wait()
        trainer.on_checkpoint()
    return saved


def last_step_of_epoch(trainer: Trainer) -> int | None:
    """The last step of this epoch; None if unknown (a stream without a length)."""
    each, most = trainer.train_batches.steps, trainer.options.max_steps
    if each is None:
        return most
    end = (trainer.progress.epoch + 1) * each
    return end if most is None else min(end, most)


def _finish(trainer: Trainer, writer: CheckpointWriter) -> dict[str, Any]:
    """Evaluates the best weights on the test set and draws the curves."""
    progress, best, run = trainer.progress, trainer.progress.best, writer.run
    assert best is not None
    if trainer.ranks.is_first:
        load_model(trainer.model, best_weights(writer.best()), None if run is None else str(run.best))
    trainer.ranks.broadcast_weights(trainer.model)
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
    if run is not None and trainer.ranks.is_first:
        _draw(trainer, run, best, held_back)
        run.finish(result)
    return result


def _draw(trainer: Trainer, run: Run, best: dict[str, Any], held_back: Result | None) -> None:
    """Draws the curves; for a regression also predictions over targets."""
    from ox.train import predictions
    from ox.train.run import curves

    subtitle, found = "", None
    name, part = list(trainer.data.parts().items())[-1]
    if held_back is not None:
        right = held_back.accuracy
        subtitle = f"test set: {percent(right) if right is not None else f'loss {held_back.loss:.4g}'}"
    if name != "train" and (held_back is None or held_back.accuracy is None) and best["validation_accuracy"] is None:
        found = predictions.predict(trainer, trainer.model, part, name)
    curves.draw(run.curves, trainer.progress.history, best, run.name, subtitle, found)


def _checkpoint_writer(run: Run | None, trainer: Trainer) -> CheckpointWriter:
    if run is None:
        if trainer.best_in_memory is None:
            trainer.best_in_memory = CheckpointWriter()
        return trainer.best_in_memory
    return Checkpoints(run, trainer.options.keep) if trainer.ranks.is_first else NoCheckpoints(run)


def _run_loggers(run: Run | None, step: int, loggers: Sequence[Logger]) -> Logger:
    """The loggers of the run folder, and those of the caller."""
    own = [] if run is None else [JSONL(run.metrics, step), TensorBoard(run.folder, step)]
    return Loggers([*own, *loggers])


@dataclass
class Signals:
    """What signals have asked for since the last step."""

    stop: list[int] = field(default_factory=list)  # the numbers of those that stop the run
    checkpoint: bool = False


@contextmanager
def _collect_signals(wanted: bool) -> Iterator[Signals]:
    """Collects signals, which are checked between steps. The second that stops the run does so immediately."""
    signals = Signals()
    # Python handles signals only in the main thread
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield signals
        return

    def stop(number: int) -> None:
        if signals.stop:
            raise KeyboardInterrupt
        signals.stop.append(number)

    def checkpoint(_: int) -> None:
        signals.checkpoint = True

    with handle_signals(stop, checkpoint):
        yield signals
