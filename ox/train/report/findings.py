"""What the best weights make of a dataset, sample by sample: losses, answers, and who is taken for whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ox.autograd.modes import no_grad
from ox.data import DataLoader, Subset
from ox.errors import OxError
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
    target: Array
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
    if len(part) > MOST:
        part = Subset(part, range(MOST))
    classes = True
    with no_grad(), np.errstate(all="ignore"):
        for batch in DataLoader(part, batch_size=BATCH):
            outputs, losses = _run(recipe, model, tuple(batch))
            if classes and outputs is not None:
                try:
                    confusion.update(outputs, batch[-1])
                except OxError:  # outputs and targets that are no scores and classes
                    classes = False
            for i, loss in enumerate(losses):
                *inputs, target = (plain(x)[i] for x in batch)
                found.add(Sample(start + i, loss, inputs, target, None if outputs is None else plain(outputs)[i]))
            start += len(losses)
            classes = classes and outputs is not None
    found.sort()
    found.confusion = confusion.compute() if classes and start else None
    return found


def _run(recipe: Recipe, model: Any, batch: tuple[Any, ...]) -> tuple[Any, list[float]]:
    """The outputs of a batch, where they are one tensor, and the loss of each of its samples."""
    rows = range(len(batch[-1]))
    step = recipe.optional("step")
    if step is not None:
        alone = [step(model, tuple(x[i : i + 1] for x in batch)) for i in rows]
        several = [outputs for _, outputs in alone]
        whole = all(hasattr(x, "node") for x in several)
        return np.concatenate([plain(x) for x in several]) if whole else None, [float(loss.item()) for loss, _ in alone]
    *inputs, targets = batch
    outputs = model(*inputs)
    if hasattr(outputs, "node") and len(outputs) == len(targets):
        return outputs, [float(recipe.page.loss(outputs[i : i + 1], targets[i : i + 1]).item()) for i in rows]
    losses = [recipe.page.loss(model(*(x[i : i + 1] for x in inputs)), targets[i : i + 1]) for i in rows]
    return None, [float(loss.item()) for loss in losses]
