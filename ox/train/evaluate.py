"""Measuring a model on a dataset: mean loss, and how many answers are right where there are classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ox.devices import cpu
from ox.dtypes import is_floating
from ox.errors import RecipeError
from ox.train.batch import describe, is_tensor, rows, target_of
from ox.train.metrics import Metric

Step = Callable[[Any, Any], tuple[Any, Any]]  # (model, batch) -> (loss, outputs or None)


@dataclass
class Result:
    """Sums over samples. `correct` is None where the task has no classes to be right about; `metrics` holds what was
    asked for besides, by name: numbers, or lists for what is no single number. A number that is not finite is None.

    `answers` is what `correct` is of: one a sample, or one a pixel or word of it. Older checkpoints have none.
    """

    count: int = 0
    loss_sum: float = 0.0
    correct: int | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    answers: int = 0

    @property
    def loss(self) -> float:
        return self.loss_sum / self.count if self.count else float("nan")

    @property
    def accuracy(self) -> float | None:
        if "accuracy" in self.metrics:
            return self.metrics["accuracy"]  # type: ignore[no-any-return]
        return None if self.correct is None else self.correct / (self.answers or self.count)

    def add(self, loss: float, outputs: Any, batch: Any) -> None:
        """Count one batch."""
        count, targets = rows(batch), target_of(batch)
        self.count += count
        self.loss_sum += loss * count
        both = is_tensor(outputs) and is_tensor(targets)
        right = right_answers(cpu(outputs.array), cpu(targets.array)) if both else None
        if right is not None:
            self.correct, self.answers = (self.correct or 0) + right, self.answers + int(targets.array.size)

    def join(self, other: Result) -> None:
        """Count what another has counted."""
        self.count += other.count
        self.loss_sum += other.loss_sum
        if other.correct is not None:
            self.correct = (self.correct or 0) + other.correct
        self.answers += other.answers

    def to_table(self) -> dict[str, Any]:
        accuracy = {} if self.correct is None else {"accuracy": self.accuracy, "correct": self.correct}
        if self.answers not in (0, self.count):
            accuracy["answers"] = self.answers
        return {"loss": self.loss, **accuracy, "count": self.count, **self.metrics}


def right_answers(outputs: np.ndarray[Any, Any], targets: np.ndarray[Any, Any]) -> int | None:
    """How often the largest of `outputs` [n, classes, ...] is the target [n, ...]; None if these are no classes.

    One column is one score for or against class 1, and does not say from where on: `metrics.Accuracy` does.
    """
    if is_floating(targets.dtype) or outputs.ndim != targets.ndim + 1 or outputs.shape[2:] != targets.shape[1:]:
        return None
    if outputs.shape[1] == 1:
        return None
    return int((outputs.argmax(axis=1) == targets).sum())


def evaluate(model: Any, step: Step, batches: Any, metrics: Sequence[Metric] = ()) -> Result:
    """Run `model` over batches in eval mode, without gradients; its mode is put back afterwards.

    Args:
        step: (model, batch) to (loss, outputs or None).
        metrics: computed as well; they are reset first.

    Raises:
        RecipeError: there are metrics, and `step` gives no outputs for them, or the batch no target.
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
                result.add(float(loss), outputs, batch)
                for metric in metrics:
                    metric.update(*_pair(outputs, batch))
    finally:
        model.train(training)
    result.metrics = {metric.name: value_of(metric) for metric in metrics}
    return result


def _pair(outputs: Any, batch: Any) -> tuple[Any, Any]:
    """What metrics compare."""
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
    """What JSON can hold: a number, None where it is not finite, or lists of numbers."""
    value = metric.compute()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value if np.isfinite(value) else None
