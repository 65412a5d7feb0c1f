"""Predictions and targets of a regression model, for the scatter plot in curves.png."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.autograd import no_grad
from ox.core.tensor import is_tensor
from ox.data import DataLoader
from ox.dtypes import is_floating
from ox.train import rng_state
from ox.train.batch import target_of
from ox.train.recipe.datasets import first
from ox.train.samples import as_array

if TYPE_CHECKING:
    from ox.train.trainer import Trainer

MAX_SAMPLES = 2000  # samples; more do not make the plot clearer


@dataclass(frozen=True)
class Predictions:
    """`truth` and `predicted` are float64 [n]: the values of `count` samples of the dataset `part`."""

    part: str
    count: int
    truth: np.ndarray[Any, Any]
    predicted: np.ndarray[Any, Any]


def predict(trainer: Trainer, model: Any, part: Any, name: str) -> Predictions | None:
    """Predictions for the first samples; None if outputs and targets do not have the same number of values."""
    truths, answers = [np.zeros(0)], [np.zeros(0)]
    count = 0
    with no_grad(), rng_state.fork_rng(), np.errstate(all="ignore"):
        loader = DataLoader(first(part, MAX_SAMPLES), batch_size=trainer.options.batch_size, collate_fn=trainer.collate)
        for batch in map(trainer.train_batches.to_device, loader):
            _, outputs = trainer.measure(model, batch)
            targets = target_of(batch)
            if not is_tensor(outputs) or not is_tensor(targets) or not is_floating(targets.dtype):
                return None
            truth, answer = as_array(targets).astype(np.float64), as_array(outputs).astype(np.float64)
            if truth.ndim == 0 or truth.ndim > 2 or truth.size != answer.size or len(truth) != len(answer):
                return None
            truths.append(truth.reshape(-1))
            answers.append(answer.reshape(-1))
            count += len(truth)
    truth, answer = np.concatenate(truths), np.concatenate(answers)
    finite = np.isfinite(truth) & np.isfinite(answer)
    return Predictions(name, count, truth[finite], answer[finite]) if finite.any() else None
