"""Evaluates a model on a dataset: mean loss, number of correct predictions, metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ox.core.tensor import is_tensor
from ox.devices import cpu
from ox.dtypes import is_floating
from ox.errors import RecipeError
from ox.train.batch import batch_size, describe, target_of
from ox.train.metrics import Metric

Step = Callable[[Any, Any], tuple[Any, Any]]  # (model, batch) -> (loss, outputs or None)


@dataclass
class Result:
    """Sums over samples. `correct` is the number of correct predictions; None if the task is no classification.
    `metrics` has the values of the recipe's metrics by name: numbers or lists. A number that is not finite is None.

    `answers` is the number of predictions: one per sample, or one per pixel or word. Older checkpoints lack it.

    `weight` is what `loss_sum` is divided by: the number of samples, or what the loss says (`ox.train.loss_weight`).
    None, as in older checkpoints: the number of samples.
    """

    count: int = 0
    loss_sum: float = 0.0
    correct: int | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    answers: int = 0
    weight: float = None  # type: ignore[assignment]  # set below

    def __post_init__(self) -> None:
        if self.weight is None:
            self.weight = float(self.count)

    @property
    def loss(self) -> float:
        return self.loss_sum / self.weight if self.weight else float("nan")

    @property
    def accuracy(self) -> float | None:
        if "accuracy" in self.metrics:
            return self.metrics["accuracy"]  # type: ignore[no-any-return]
        return None if self.correct is None else self.correct / (self.answers or self.count)

    def add(self, loss: float, outputs: Any, batch: Any, weight: float | None = None) -> None:
        """Adds one batch. `weight` of the loss: by default the number of samples; 0 leaves it out, for it is NaN where
        no label counts."""
        count, targets = batch_size(batch), target_of(batch)
        self.count += count
        weight = count if weight is None else weight
        if weight:
            self.weight += weight
            self.loss_sum += loss * weight
        both = is_tensor(outputs) and is_tensor(targets)
        right = right_answers(cpu(outputs.array), cpu(targets.array)) if both else None
        if right is not None:
            self.correct, self.answers = (self.correct or 0) + right, self.answers + int(targets.array.size)

    def join(self, other: Result) -> None:
        """Adds the sums of another result."""
        self.count += other.count
        self.loss_sum += other.loss_sum
        self.weight += other.weight
        if other.correct is not None:
            self.correct = (self.correct or 0) + other.correct
        self.answers += other.answers

    def to_table(self) -> dict[str, Any]:
        accuracy = {} if self.correct is None else {"accuracy": self.accuracy, "correct": self.correct}
        if self.answers not in (0, self.count):
            accuracy["answers"] = self.answers
        return {"loss": self.loss, **accuracy, "count": self.count, **self.metrics}


def right_answers(outputs: np.ndarray[Any, Any], targets: np.ndarray[Any, Any]) -> int | None:
    """The number of correct predictions: the class with the largest of `outputs` [n, classes, ...] equals the target
    [n, ...]. None if it is no classification, and for outputs of one column, which need a threshold: see
    `metrics.Accuracy`.
    """
    if is_floating(targets.dtype) or outputs.ndim != targets.ndim + 1 or outputs.shape[2:] != targets.shape[1:]:
        return None
    if outputs.shape[1] == 1:
        return None
    return int((outputs.argmax(axis=1) == targets).sum())


def evaluate(
    model: Any,
    step: Step,
    batches: Any,
    metrics: Sequence[Metric] = (),
    weight: Callable[[Any], float] = batch_size,
) -> Result:
    """Run `model` over batches in eval mode, without gradients; its mode is restored afterwards.

    Args:
        step: (model, batch) to (loss, outputs or None).
        metrics: metrics to compute; they are reset first.
        weight: of a batch's loss; see `ox.train.loss_weight`.

    Raises:
        RecipeError: there are metrics, but `step` returns no outputs or the batch has no target.
    """
    from ox.autograd import no_grad

    training, result = model.training, Result()
    model.eval()
    for metric in metrics:
        metric.reset()
    try:
        with no_grad():
            for batch in batches:
                loss, outputs = step(model, batch)
                result.add(float(loss), outputs, batch, weight(batch))
                for metric in metrics:
                    metric.update(*_outputs_and_targets(outputs, batch))
    finally:
        model.train(training)
    result.metrics = {metric.name: value_of(metric) for metric in metrics}
    return result


def _outputs_and_targets(outputs: Any, batch: Any) -> tuple[Any, Any]:
    """The outputs and targets for the metrics."""
    targets = target_of(batch)
    if outputs is None:
        raise RecipeError("there are no outputs for the metrics", expected="step() to return them")
    if isinstance(outputs, (tuple, list, dict)) or targets is None:
        raise RecipeError(
            "the metrics compare one tensor with the target",
            got=f"outputs {describe(outputs)}, batch {describe(batch)}",
            hint="step(model, batch) that returns (loss, scores), and metrics only where a batch has a target",
        )
    return outputs, targets


def value_of(metric: Metric) -> Any:
    """The value of a metric for JSON: a number, None if it is not finite, or lists of numbers."""
    value = metric.compute()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value if np.isfinite(value) else None
