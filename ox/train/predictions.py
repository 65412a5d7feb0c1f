"""What a model that foretells numbers makes of a dataset: predicted beside true values, to be drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.autograd import no_grad
from ox.data import DataLoader
from ox.dtypes import is_floating
from ox.train import chance
from ox.train.batch import is_tensor, target_of
from ox.train.datasets import first
from ox.train.samples import plain

if TYPE_CHECKING:
    from ox.train.trainer import Trainer

MOST = 2000  # samples: more do not make a clearer picture


@dataclass(frozen=True)
class Predictions:
    """`truth` and `predicted` are float64 [n], numbers of `count` samples of the data called `part`."""

    part: str
    count: int
    truth: np.ndarray[Any, Any]
    predicted: np.ndarray[Any, Any]


def predict(trainer: Trainer, model: Any, part: Any, name: str) -> Predictions | None:
    """The model in eval mode on the first samples; None where outputs and targets are not as many numbers each."""
    truths, answers = [np.zeros(0)], [np.zeros(0)]
    count = 0
    with no_grad(), chance.kept(), np.errstate(all="ignore"):
        loader = DataLoader(first(part, MOST), batch_size=trainer.options.batch_size, collate_fn=trainer.collate)
        for batch in map(trainer.feed.placed, loader):
            _, outputs = trainer.measure(model, batch)
            targets = target_of(batch)
            if not is_tensor(outputs) or not is_tensor(targets) or not is_floating(targets.dtype):
                return None
            truth, answer = plain(targets).astype(np.float64), plain(outputs).astype(np.float64)
            if truth.ndim == 0 or truth.ndim > 2 or truth.size != answer.size or len(truth) != len(answer):
                return None
            truths.append(truth.reshape(-1))
            answers.append(answer.reshape(-1))
            count += len(truth)
    truth, answer = np.concatenate(truths), np.concatenate(answers)
    finite = np.isfinite(truth) & np.isfinite(answer)
    return Predictions(name, count, truth[finite], answer[finite]) if finite.any() else None
