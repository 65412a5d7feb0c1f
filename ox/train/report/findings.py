"""What the best weights make of a dataset, sample by sample: losses, answers, and who is taken for whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ox.autograd.modes import no_grad
from ox.data import DataLoader
from ox.errors import OxError
from ox.train.batch import arguments, is_tensor, row, rows, target_of, tensors
from ox.train.datasets import first
from ox.train.measure import validation_loss
from ox.train.metrics import ConfusionMatrix
from ox.train.recipe import Recipe
from ox.train.samples import plain

Array = np.ndarray[Any, Any]

MOST = 10_000  # samples that are looked at: a report should not take as long as an epoch
WORST = 12
BATCH = 256


@dataclass
class Sample:
    """One sample: where it stands in the dataset, its loss, inputs, target, and the model's outputs for it."""

    index: int
    loss: float
    inputs: list[Array]
    target: Array | None
    outputs: Array | None


@dataclass
class Findings:
    """`confusion` is int64 [classes, classes], rows what is, columns what was answered; None without classes."""

    count: int = 0
    worst: list[Sample] = field(default_factory=list)  # the largest losses first
    confusion: Array | None = None

    def add(self, sample: Sample) -> None:
        self.count += 1
        self.worst.append(sample)
        if len(self.worst) > 4 * WORST:
            self.sort()

    def sort(self) -> None:
        # NaN is the worst of all
        self.worst.sort(key=lambda s: np.inf if np.isnan(s.loss) else s.loss, reverse=True)
        del self.worst[WORST:]


def find(recipe: Recipe, model: Any, part: Any) -> Findings:
    """Run the first samples of a dataset, at most `MOST`, through a model in eval mode.

    Each sample's loss is the recipe's own loss of it alone.
    """
    found, confusion, start = Findings(), ConfusionMatrix(), 0
    part = first(part, MOST)
    classes = True
    with no_grad(), np.errstate(all="ignore"):
        for batch in DataLoader(part, batch_size=BATCH, collate_fn=recipe.function("collate")):
            batch = tuple(batch) if type(batch) is list else batch
            outputs, losses = _run(recipe, model, batch)
            targets = target_of(batch)
            if classes and outputs is not None and is_tensor(targets):
                try:
                    confusion.update(outputs, targets)
                except OxError:  # outputs and targets that are no scores and classes
                    classes = False
            for i, loss in enumerate(losses):
                inputs = [plain(x)[i] for _, x in tensors(batch) if x is not targets]
                target = plain(targets)[i] if is_tensor(targets) else None
                found.add(Sample(start + i, loss, inputs, target, None if outputs is None else plain(outputs)[i]))
            start += len(losses)
            classes = classes and outputs is not None
    found.sort()
    found.confusion = confusion.compute() if classes and start else None
    return found


def _run(recipe: Recipe, model: Any, batch: Any) -> tuple[Any, list[float]]:
    """The outputs of a batch, where they are one tensor, and the loss of each of its samples; no losses where the
    batch cannot be taken apart."""
    count, targets = rows(batch), target_of(batch)
    own = recipe.optional("validate") or recipe.optional("step")
    if own is None and is_tensor(targets):
        inputs, named = arguments(model, batch)
        outputs = model(*inputs, **named)
        if is_tensor(outputs) and outputs.ndim and len(outputs) == count:
            loss = recipe.page.loss
            return outputs, [float(loss(outputs[i : i + 1], targets[i : i + 1])) for i in range(count)]
    each = [row(batch, i, count) for i in range(count)]
    if any(one is None for one in each):
        return None, []
    alone = [validation_loss(recipe, model, one) for one in each]
    several = [outputs for _, outputs in alone]
    whole = own is not None and all(map(is_tensor, several))
    return np.concatenate([plain(x) for x in several]) if whole else None, [float(loss) for loss, _ in alone]
