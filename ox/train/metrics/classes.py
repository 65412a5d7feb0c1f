"""Outputs and targets of a classification, made plain: a row of scores a target, or an answer a target."""

from __future__ import annotations

import numpy as np

from ox.dtypes import is_floating
from ox.errors import ArgumentError, BoundsError, DTypeError, ShapeError
from ox.train.metrics.metric import Array

IGNORED = -100  # as in `nn.CrossEntropyLoss`


def scores(outputs: Array, targets: Array, axis: int | None = None, ignored: int = IGNORED) -> tuple[Array, Array]:
    """Scores [m, classes] and labels int64 [m], without the targets that are ignored.

    Args:
        outputs: [n, classes, ...], as `nn.CrossEntropyLoss` takes them, or [n, ..., classes].
        targets: integers [n, ...].
        axis: of the classes, 1 or -1; needed only where the shapes fit both.

    Raises:
        ShapeError, DTypeError, BoundsError: they do not fit, or a target names no class.
        ArgumentError: a score is NaN.
    """
    if is_floating(targets.dtype):
        raise DTypeError(
            "targets name classes", expected="integers", got=str(targets.dtype),
            hint="a metric for numbers: MeanAbsoluteError, RMSE, R2",
        )  # fmt: skip
    fits = _class_axes(outputs, targets, axis)
    if len(fits) != 1:
        raise ShapeError(
            "the shapes fit classes on axis 1 and on the last" if fits else "outputs and targets do not fit",
            expected="scores [n, classes, ...] or [n, ..., classes] and targets [n, ...]",
            got=f"outputs {list(outputs.shape)} and targets {list(targets.shape)}",
            hint="axis=1 or axis=-1" if fits else None,
        )
    rows = np.moveaxis(outputs, fits[0], -1).reshape(-1, outputs.shape[fits[0]])
    return without_ignored(rows, targets.reshape(-1), rows.shape[1], ignored)


def _class_axes(outputs: Array, targets: Array, axis: int | None) -> list[int]:
    """The axes on which the classes may lie."""
    if outputs.ndim != targets.ndim + 1 or outputs.ndim < 2:
        return []
    tried = {a % outputs.ndim for a in ((1, -1) if axis is None else (axis,))}
    return [a for a in tried if outputs.shape[:a] + outputs.shape[a + 1 :] == targets.shape]


def without_ignored(rows: Array, labels: Array, classes: int, ignored: int) -> tuple[Array, Array]:
    """Rows and labels without those that are ignored; no row that is left has NaN, and the labels name classes."""
    keep = labels != ignored
    if not keep.all():
        rows, labels = rows[keep], labels[keep]
    nan = np.isnan(rows).any(axis=tuple(range(1, rows.ndim)))
    if nan.any():  # the largest of them would be an answer like any other
        raise ArgumentError("outputs hold NaN, which is no answer", got=f"NaN for {nan.sum()} of {len(rows)} targets")
    return rows, _check_labels("target", labels.astype(np.int64), classes)


def _check_labels(what: str, labels: Array, classes: int) -> Array:
    wrong = labels[(labels < 0) | (labels >= classes)]
    if wrong.size:
        raise BoundsError(f"{what} {wrong[0]} is no class", expected=f"0 to {classes - 1}", got=str(wrong[0]))
    return labels


def is_binary(outputs: Array, targets: Array) -> bool:
    """Whether these are one score a target, of class 1 against class 0: [n] or [n, 1], as `nn.BCEWithLogitsLoss`
    takes them."""
    one = outputs.shape == targets.shape or outputs.shape == (*targets.shape, 1)
    return one and is_floating(outputs.dtype)


def binary_scores(outputs: Array, targets: Array, ignored: int = IGNORED) -> tuple[Array, Array]:
    """One score a target and labels 0 or 1, both [m]."""
    if is_floating(targets.dtype) and not np.isin(targets, (0, 1, ignored)).all():
        raise ArgumentError("targets of two classes are 0 or 1", got=f"{targets.dtype} between them")
    return without_ignored(outputs.reshape(-1), targets.reshape(-1), 2, ignored)


def predicted_classes(
    outputs: Array, targets: Array, axis: int | None, ignored: int, threshold: float, classes: int | None
) -> tuple[Array, Array, int]:
    """Which class each output names, which is right, both int64 [m], and how many classes there are.

    Outputs are scores (the largest answers; of equals the first), one score of class 1 against 0 (above `threshold`
    answers 1), or answers themselves: integers of the targets' shape, for which `classes` must be known.
    """
    if is_binary(outputs, targets):
        rows, labels = binary_scores(outputs, targets, ignored)
        return (rows > threshold).astype(np.int64), labels, 2
    if outputs.shape == targets.shape:
        if classes is None:
            raise ArgumentError("predicted classes need the number of classes", hint="classes=10")
        rows, labels = without_ignored(outputs.reshape(-1).astype(np.int64), targets.reshape(-1), classes, ignored)
        return _check_labels("answer", rows, classes), labels, classes
    rows, labels = scores(outputs, targets, axis, ignored)
    return rows.argmax(1), labels, rows.shape[1]
