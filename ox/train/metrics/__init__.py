"""Metrics, computed batch by batch as in torchmetrics, without keeping the data.

    accuracy = Accuracy()
    for images, labels in loader:
        accuracy.update(model(images), labels)
    print(accuracy.compute())
    accuracy.reset()

Each takes tensors or arrays, keeps plain sums, and merges with the state of another process: `merge(state_dict())`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from ox.errors import ArgumentError
from ox.train.metrics.accuracy import Accuracy, TopK
from ox.train.metrics.auroc import AUROC
from ox.train.metrics.confusion import ConfusionMatrix
from ox.train.metrics.f1 import F1
from ox.train.metrics.metric import Metric
from ox.train.metrics.perplexity import Perplexity
from ox.train.metrics.regression import R2, RMSE, MeanAbsoluteError

__all__ = [
    "AUROC",
    "F1",
    "NAMES",
    "R2",
    "RMSE",
    "Accuracy",
    "ConfusionMatrix",
    "MeanAbsoluteError",
    "Metric",
    "Perplexity",
    "TopK",
    "metric_of",
    "metrics_of",
]

# The metrics by the names that recipe files use
NAMES: dict[str, Callable[[], Metric]] = {
    "accuracy": Accuracy,
    "top5": TopK,
    "f1": F1,
    "f1_micro": partial(F1, "micro"),
    "f1_weighted": partial(F1, "weighted"),
    "f1_binary": partial(F1, "binary"),
    "auroc": AUROC,
    "perplexity": Perplexity,
    "confusion": ConfusionMatrix,
    "mae": MeanAbsoluteError,
    "rmse": RMSE,
    "r2": R2,
}


def metrics_of(wanted: Any) -> list[Metric]:
    """The metrics of a recipe's or a Trainer's `metrics`; None for none.

    Raises:
        ArgumentError: no list, or no such metric.
    """
    if isinstance(wanted, str | Metric):
        raise ArgumentError("metrics is a list of names or metrics", got=repr(wanted), hint="[...] around it")
    return [metric_of(one) for one in wanted or ()]


def metric_of(wanted: Metric | str) -> Metric:
    """A metric itself, or a new one by its name; ``top3`` and the like for any k.

    Raises:
        ArgumentError: no such metric; names the nearest.
    """
    if isinstance(wanted, Metric):
        return wanted
    if isinstance(wanted, str):
        if wanted in NAMES:
            return NAMES[wanted]()
        if top := re.fullmatch(r"top([1-9]\d{0,5})", wanted):
            return TopK(int(top[1]))
    near = difflib.get_close_matches(str(wanted), NAMES, 1, 0.3)
    raise ArgumentError(
        f"there is no metric {wanted!r}",
        expected=f"{', '.join(NAMES)}, topK for any K, or an ox.train.metrics.Metric",
        hint=f"'{near[0]}'" if near else None,
    )
