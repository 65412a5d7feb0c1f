"""The default scores of a regression model, for recipes without metrics."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.core.tensor import is_tensor
from ox.dtypes import is_floating
from ox.errors import OxError
from ox.train.evaluation import value_of
from ox.train.metrics.metric import Metric
from ox.train.metrics.regression import R2, RMSE, MeanAbsoluteError


class RegressionScores:
    """``mae``, ``rmse`` and ``r2``, as long as outputs and targets are floating numbers of one shape, and the targets
    not only zeros and ones, which are two classes."""

    def __init__(self) -> None:
        self._metrics: tuple[Metric, ...] = (MeanAbsoluteError(), RMSE(), R2())
        self._more_than_two = False

    def update(self, outputs: Any, targets: Any) -> None:
        """Count one batch."""
        if not self._metrics:
            return
        if not is_tensor(outputs) or not is_tensor(targets) or not is_floating(targets.dtype):
            self._metrics = ()
            return
        self._more_than_two = self._more_than_two or not bool(np.isin(targets.cpu().array, (0, 1)).all())
        try:
            for metric in self._metrics:
                metric.update(outputs, targets)
        except OxError:  # outputs of another shape are no guesses of the targets
            self._metrics = ()

    def compute(self) -> dict[str, Any]:
        """Each by its name; nothing where they mean nothing."""
        return {metric.name: value_of(metric) for metric in self._metrics} if self._more_than_two else {}
