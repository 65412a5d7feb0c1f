"""Evaluates the best weights sample by sample: losses, predictions and the confusion matrix."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ox.autograd.grad_mode import no_grad
from ox.core.tensor import is_tensor
from ox.data import DataLoader
from ox.errors import OxError
from ox.train.batch import batch_size, model_arguments, single_sample, target_of, tensors
from ox.train.loss import validation_loss
from ox.train.metrics import ConfusionMatrix
from ox.train.recipe.datasets import first
from ox.train.recipe.recipe import Recipe
from ox.train.samples import as_array

Array = np.ndarray[Any, Any]

MAX_SAMPLES = 10_000  # samples to evaluate, so that a report takes less time than an epoch
MAX_WORST = 12
BATCH = 256


@dataclass
class Sample:
    """One sample: its index in the data set, loss, inputs, target and the model's outputs."""

    index: int
    loss: float
    inputs: list[Array]
    target: Array | None
    outputs: Array | None


@dataclass
class Findings:
    """`confusion` is int64 [classes, classes], rows: true class, columns: predicted class; None without classes."""

    count: int = 0
    worst: list[Sample] = field(default_factory=list)  # the largest losses first
    confusion: Array | None = None

    def add(self, sample: Sample) -> None:
        self.count += 1
        self.worst.append(sample)
        if len(self.worst) > 4 * MAX_WORST:
            self.sort()

    def sort(self) -> None:
        # NaN sorts first
        self.worst.sort(key=lambda s: np.inf if np.isnan(s.loss) else s.loss, reverse=True)
        del self.worst[MAX_WORST:]


def find(recipe: Recipe, model: Any, part: Any) -> Findings:
    """Evaluates a model in eval mode on the first samples of a data set, at most `MAX_SAMPLES`.

    The loss of a sample is the recipe's loss of a batch with only this sample.
    """
    found, confusion, start = Findings(), ConfusionMatrix(), 0
    part = first(part, MAX_SAMPLES)
    classes = True
    with no_grad(), np.errstate(all="ignore"):
        for batch in DataLoader(part, batch_size=BATCH, collate_fn=recipe.function("collate")):
            batch = tuple(batch) if type(batch) is list else batch
            outputs, losses = _run(recipe, model, batch)
            targets = target_of(batch)
            if classes and outputs is not None and is_tensor(targets):
                try:
                    confusion.update(outputs, targets)
                except OxError:  # outputs and targets are not scores and classes
                    classes = False
            for i, loss in enumerate(losses):
                inputs = [as_array(x)[i] for _, x in tensors(batch) if x is not targets]
                target = as_array(targets)[i] if is_tensor(targets) else None
                found.add(Sample(start + i, loss, inputs, target, None if outputs is None else as_array(outputs)[i]))
            start += len(losses)
            classes = classes and outputs is not None
    found.sort()
    found.confusion = confusion.compute() if classes and start else None
    return found


def _run(recipe: Recipe, model: Any, batch: Any) -> tuple[Any, list[float]]:
    """The outputs of a batch, where they are one tensor, and the loss of each of its samples; no losses where the
    batch cannot be taken apart."""
    count, targets = batch_size(batch), target_of(batch)
    own = recipe.optional("validate") or recipe.optional("step")
    if own is None and is_tensor(targets):
        inputs, named = model_arguments(model, batch)
        outputs = model(*inputs, **named)
        if is_tensor(outputs) and outputs.ndim and len(outputs) == count:
            loss = recipe.page.loss
            return outputs, [float(loss(outputs[i : i + 1], targets[i : i + 1])) for i in range(count)]
    each = [single_sample(batch, i, count) for i in range(count)]
    if any(one is None for one in each):
        return None, []
    alone = [validation_loss(recipe, model, one) for one in each]
    several = [outputs for _, outputs in alone]
    whole = own is not None and all(map(is_tensor, several))
    return np.concatenate([as_array(x) for x in several]) if whole else None, [float(loss) for loss, _ in alone]
