"""Evaluating a dataset with errors that name what is to blame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ox.autograd import no_grad
from ox.data import DataLoader, Subset
from ox.data.dataset import traced
from ox.train.culprit import blame
from ox.train.evaluate import Result, Step, evaluate
from ox.train.metrics import Metric
from ox.train.nonfinite import diagnose


def validate(
    model: Any,
    step: Step,
    part: Any,
    *,
    name: str,
    batch_size: int,
    placed: Callable[[Any], Any],
    metrics: Sequence[Metric] = (),
    numbers: range | None = None,
) -> Result:
    """`evaluate` on a dataset, in its order.

    Args:
        name: of the part, for errors: "validation after step 20".
        placed: brings a batch to the model's device.
        numbers: evaluate these samples; None for all.

    Raises:
        TrainError: the loss is NaN or infinite, or the model cannot take a sample.
    """
    numbers = range(len(part)) if numbers is None else numbers
    loader = DataLoader(part if len(numbers) == len(part) else Subset(part, numbers), batch_size=batch_size)
    with np.errstate(all="ignore"):
        try:
            result = evaluate(model, step, map(placed, loader), metrics)
        except Exception as error:
            raise _explained(error, model, step, map(placed, loader), name, part, numbers) from error
        if result.count and not np.isfinite(result.loss):
            raise _explained(None, model, step, map(placed, loader), name, part, numbers)
    return result


def _explained(
    error: Exception | None, model: Any, step: Step, batches: Iterable[Any], name: str, part: Any, numbers: range
) -> Exception:
    """The error to raise: of the first batch that fails or whose loss is not finite."""
    training, done = model.training, 0
    model.eval()
    try:
        with no_grad():
            for i, batch in enumerate(batches):
                indices = traced(part, numbers[done : done + len(batch[-1])])
                try:
                    value = float(step(model, batch)[0].item())
                except Exception as own:
                    return blame(own, step, model, batch, f"batch {i + 1} of the {name}", indices)
                if not np.isfinite(value):  # before what a metric says of it
                    return diagnose(model, step, batch, value, name, indices)
                done += len(batch[-1])
    finally:
        model.train(training)
    assert error is not None, "a loss that is not finite has a batch"
    return error
