"""The progress of a run and its best epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any

from ox.errors import RecipeError
from ox.train.evaluation import Result
from ox.train.metrics import Metric

Row = dict[str, Any]


@dataclass
class Progress:
    """The progress of a run. `epoch` counts finished epochs, `step` updates; `running` sums over the current epoch."""

    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    running: Result = field(default_factory=Result)
    history: list[Row] = field(default_factory=list)  # one row per epoch as in metrics.jsonl, without lists and texts
    best: Row | None = None  # the row of the best epoch on validation

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, state: dict[str, Any]) -> Progress:
        """Restores a `state_dict`."""
        return cls(**{**state, "running": Result(**state["running"])})

    def close_epoch(self, row: Row, criterion: Criterion) -> None:
        """Adds an epoch's row, and keeps it as the best if it is better than all before."""
        self.running = Result()
        # lists, such as one confusion matrix per epoch, would make the checkpoint grow
        self.history.append({name: value for name, value in row.items() if not isinstance(value, (list, str))})
        if self.best is None or criterion.merit(row) > criterion.merit(self.best):
            self.best = row


class Criterion:
    """Which of two epochs is the better: ``"accuracy"`` (the largest), ``"-loss"`` (the least), or a metric's name with
    or without minus. None: the highest accuracy, then the lowest loss.

    Raises:
        RecipeError: there is no such metric, or the sign would keep the worst epoch.
    """

    def __init__(self, wanted: str | None, metrics: Sequence[Metric] = ()) -> None:
        self.asked = wanted is not None
        self.name = "accuracy" if wanted is None else wanted.removeprefix("-")
        self.sign = -1 if wanted is not None and wanted.startswith("-") else 1
        higher = {"accuracy": True, "loss": False} | {metric.name: metric.higher_is_better for metric in metrics}
        numbers = {name: good for name, good in higher.items() if good is not None}
        names = ", ".join(name if good else f"-{name}" for name, good in numbers.items())
        if self.name not in numbers:
            raise RecipeError(f"best = '{wanted}' is not a validation metric", expected=names)
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
        """The value for a scheduler that watches a metric: mode "min" or "max".

        It is the metric that chooses the best epoch if `mode` fits it, else the loss ("min") or the accuracy ("max").
        Without validation data the metrics of training are used.

        Raises:
            RecipeError: there is no such metric.
        """
        sign = -1 if mode == "min" else 1
        name = self.name if self.asked and sign == self.sign else "loss" if mode == "min" else "accuracy"
        validated = row["validation_loss"] is not None
        value = row.get(f"validation_{name}" if validated else name)
        if value is None:
            raise RecipeError(
                f"the scheduler watches {name}, and the {'validation' if validated else 'training'} gives none",
                hint="mode='min', which watches the loss, or best = 'f1' or another of the recipe's metrics",
            )
        return float(value)
