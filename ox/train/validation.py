"""Evaluating a dataset with errors that name what is to blame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.autograd import no_grad
from ox.data import DataLoader
from ox.data.dataset import traced
from ox.errors import OxError
from ox.train import chance
from ox.train.batch import arguments, rows
from ox.train.culprit import blame
from ox.train.datasets import first, is_stream, share
from ox.train.evaluate import Result, Step, evaluate
from ox.train.metrics import Metric
from ox.train.nonfinite import diagnose

if TYPE_CHECKING:
    from ox.train.trainer import Trainer


def validate(
    model: Any,
    step: Step,
    part: Any,
    *,
    name: str,
    batch_size: int,
    placed: Callable[[Any], Any],
    metrics: Sequence[Metric] = (),
    collate: Callable[[list[Any]], Any] | None = None,
    rank: int = 0,
    size: int = 1,
) -> Result:
    """`evaluate` on a dataset, in its order.

    Args:
        name: of the part, for errors: "validation after step 20".
        placed: brings a batch to the model's device.
        collate: makes a batch of samples; None for the usual one.
        rank, size: evaluate every `size`-th sample, from `rank` on.

    Raises:
        TrainError: the loss is NaN or infinite, or the model cannot take a sample.
    """
    part = share(part, rank, size)
    loader = DataLoader(part, batch_size=batch_size, collate_fn=collate)
    with np.errstate(all="ignore"):
        try:
            result = evaluate(model, step, map(placed, loader), metrics)
        except Exception as error:
            raise _explained(error, model, step, map(placed, loader), name, part) from error
        if result.count and not np.isfinite(result.loss):
            raise _explained(None, model, step, map(placed, loader), name, part)
    return result


def try_parts(trainer: Trainer) -> None:
    """Read the first two samples of what will be measured after an epoch and at the end, and see whether the model can
    be called with them and there is a target: an error of these should not wait until then. Nothing is computed. What
    training meets as well, its first step says. Streams, which may be read once, and random numbers are left alone.

    Raises:
        what `validate` does.
    """
    recipe = trainer.recipe
    own = recipe.optional("validate") or recipe.optional("step")
    parts = {name: first(part, 2) for name, part in trainer.data.parts().items() if not is_stream(part)}
    with chance.kept():
        if own is not None or "train" not in parts or _trial(trainer, parts.pop("train")) is not None:
            return
        for name, part in parts.items():
            if (error := _trial(trainer, part)) is not None:
                if isinstance(error, OxError):
                    error.extra = {"when": f"the {name} data are read", **error.extra}
                raise error


def _trial(trainer: Trainer, part: Any) -> Exception | None:
    """What goes wrong when a few samples are made a batch and taken apart."""
    try:
        for batch in DataLoader(part, batch_size=2, collate_fn=trainer.collate):
            arguments(trainer.model, tuple(batch) if type(batch) is list else batch)
    except Exception as error:
        return error
    return None


def _explained(
    error: Exception | None, model: Any, step: Step, batches: Iterable[Any], name: str, part: Any
) -> Exception:
    """The error to raise: of the first batch that fails or whose loss is not finite."""
    training, done = model.training, 0
    model.eval()
    try:
        with no_grad():
            for i, batch in enumerate(batches):
                count = rows(batch)
                indices = [] if is_stream(part) else traced(part, range(done, min(done + count, len(part))))
                try:
                    value = float(step(model, batch)[0])
                except Exception as own:
                    return blame(own, step, model, batch, f"batch {i + 1} of the {name}", indices)
                if not np.isfinite(value):  # before what a metric says of it
                    return diagnose(model, step, batch, value, name, indices)
                done += count
    finally:
        model.train(training)
    assert error is not None, "a loss that is not finite has a batch"
    return error
