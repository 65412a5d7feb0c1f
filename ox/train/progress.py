"""How far a run has come, and which of its epochs is the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any

from ox.errors import RecipeError
from ox.train.evaluate import Result
from ox.train.metrics import Metric

Row = dict[str, Any]


@dataclass
class Progress:
    """How far a run has come. `epoch` counts whole ones, `step` updates; the sums are of the epoch under way."""

    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    running: Result = field(default_factory=Result)
    history: list[Row] = field(default_factory=list)  # a row an epoch, as in metrics.jsonl, without lists and texts
    best: Row | None = None  # the row of the best epoch on validation

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, state: dict[str, Any]) -> Progress:
        """What `state_dict` gave."""
        return cls(**{**state, "running": Result(**state["running"])})

    def close_epoch(self, row: Row, criterion: Criterion) -> None:
        """Note an epoch's row, and whether it is the best so far: of equals the earlier."""
        self.running = Result()
        # lists, such as a confusion matrix an epoch, would make the checkpoint grow
        self.history.append({name: value for name, value in row.items() if not isinstance(value, (list, str))})
        if self.best is None or criterion.merit(row) > criterion.merit(self.best):
            self.best = row


class Criterion:
    """Which of two epochs is the better: ``"accuracy"`` (the largest), ``"-loss"`` (the least), or a metric's name with
    or without minus. None: who is most often right, then who has the least loss.

    Raises:
        RecipeError: no such figure, or one of which the worst would be kept.
    """

    def __init__(self, wanted: str | None, metrics: Sequence[Metric] = ()) -> None:
        self.asked = wanted is not None
        self.name = "accuracy" if wanted is None else wanted.removeprefix("-")
        self.sign = -1 if wanted is not None and wanted.startswith("-") else 1
        higher = {"accuracy": True, "loss": False} | {metric.name: metric.higher_is_better for metric in metrics}
        numbers = {name: good for name, good in higher.items() if good is not None}
        names = ", ".join(name if good else f"-{name}" for name, good in numbers.items())
        if self.name not in numbers:
            raise RecipeError(f"best = '{wanted}' is no figure of the validation", expected=names)
        if numbers[self.name] != (self.sign > 0):
            raise RecipeError(
                f"best = '{wanted}' would keep the worst epoch",
                expected=names, hint=f"best = '{self.name if self.sign < 0 else '-' + self.name}'",
            )  # fmt: skip

    def merit(self, row: Row) -> tuple[float, float]:
        if row["validation_loss"] is None:  # no validation data: the last epoch
            return (row["epoch"], 0.0)
        value = row[f"validation_{self.name}"]
        return (-inf if value is None else self.sign * value, -row["validation_loss"])

    def figure(self, row: Row, mode: str) -> float:
        """What a scheduler watches that wants the least ("min") or the largest ("max"): the figure that chooses the
        best epoch, if it is better that way; else the loss, or accuracy. Without validation data those of training.

        Raises:
            RecipeError: there is no such figure.
        """
        sign = -1 if mode == "min" else 1
        name = self.name if self.asked and sign == self.sign else "loss" if mode == "min" else "accuracy"
        validated = row["validation_loss"] is not None
        value = row.get(f"validation_{name}" if validated else name)
        if value is None:
            raise RecipeError(
                f"the scheduler watches {name}, and the {'validation' if validated else 'training'} gives none",
                hint="mode='min', which watches the loss, or best = 'f1' or another of the page's metrics",
            )
        return float(value)
