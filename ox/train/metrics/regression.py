"""How far numbers are from the truth."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ox.errors import ShapeError
from ox.train.metrics.metric import Array, Metric, State


class MeanAbsoluteError(Metric):
    """The mean of |output - target| over all numbers, in their unit. Outputs and targets have one shape, but for axes
    of 1. ``sklearn.metrics.mean_absolute_error``."""

    name = "mae"
    higher_is_better = False

    def count(self, outputs: Array, targets: Array) -> State:
        given, true = pair(outputs, targets)
        return {"off": np.array(np.abs(given - true).sum()), "count": np.array(true.size)}

    def result(self, state: Mapping[str, Array]) -> float:
        return float(state["off"] / state["count"]) if state["count"] else float("nan")


class RMSE(Metric):
    """The root of the mean of (output - target)² over all numbers, in their unit.
    ``sklearn.metrics.root_mean_squared_error`` of one column."""

    name = "rmse"
    higher_is_better = False

    def count(self, outputs: Array, targets: Array) -> State:
        given, true = pair(outputs, targets)
        return {"off": np.array(np.square(given - true).sum()), "count": np.array(true.size)}

    def result(self, state: Mapping[str, Array]) -> float:
        return float(np.sqrt(state["off"] / state["count"])) if state["count"] else float("nan")


class R2(Metric):
    """The share of the targets' variance that is explained; of several columns the mean. 1 is perfect, 0 is as good as
    always saying the mean. ``sklearn.metrics.r2_score``; NaN of fewer than two samples.

    Mean and spread are merged by Chan's formulas, so that large targets lose no digits.
    """

    name = "r2"

    def count(self, outputs: Array, targets: Array) -> State:
        given, true = pair(outputs, targets)
        given, true = (x.reshape(len(x), -1) for x in (given, true))
        mean = true.mean(0) if len(true) else np.zeros(true.shape[1])
        return {
            "count": np.array(len(true)),
            "mean": mean,
            "spread": np.square(true - mean).sum(0),
            "off": np.square(given - true).sum(0),
        }

    def merge(self, state: Mapping[str, Array]) -> None:
        if not self._state:
            return super().merge(state)
        if not state:
            return None
        a, b, count = self._state["count"], state["count"], self._state["count"] + state["count"]
        mean, spread, apart = self._state["mean"], self._state["spread"], state["mean"] - self._state["mean"]
        super().merge(state)
        if count:
            self._state["mean"] = mean + apart * (b / count)
            self._state["spread"] = spread + state["spread"] + np.square(apart) * (a * b / count)
        return None

    def result(self, state: Mapping[str, Array]) -> float:
        if state["count"] < 2:
            return float("nan")
        off, spread = state["off"], state["spread"]
        share = np.divide(off, spread, out=(off > 0).astype(np.float64), where=spread > 0)
        return float((1 - share).mean())


def pair(outputs: Array, targets: Array) -> tuple[Array, Array]:
    """Both as float64 of one shape; a column and a row are one thing, everything else must fit as it is."""
    if outputs.shape != targets.shape:
        if [n for n in outputs.shape if n != 1] != [n for n in targets.shape if n != 1]:
            raise ShapeError(
                "outputs and targets do not fit", expected=f"outputs {list(targets.shape)}",
                got=str(list(outputs.shape)),
            )  # fmt: skip
        outputs = outputs.reshape(targets.shape)
    given, true = np.atleast_1d(outputs).astype(np.float64), np.atleast_1d(targets).astype(np.float64)
    return given, true
