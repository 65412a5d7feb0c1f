"""Kernels of rows: softmax along the last axis, cross entropy, rows that are taken from or added at places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ox.kernels import Library, address

Run = Callable[[Library, list[Any], dict[str, Any]], Any]


def of_rows(name: str) -> Run:
    """A kernel along the last axis, of one or two arrays of one shape."""

    def run(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
        x = arrays[0]
        if attributes.get("axis", -1) not in (-1, x.ndim - 1) or not x.size:
            return None
        if not all(a.flags.c_contiguous and a.shape == x.shape for a in arrays):
            return None
        y, columns = library.empty_like(x), x.shape[-1]
        getattr(library, name)(x.size // columns, *[address(a) for a in arrays], address(y), columns)
        return y

    return run


def cross_entropy(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """CrossEntropy."""
    scores, target = arrays
    rows, classes = scores.shape
    if not scores.size or target.shape != (rows,) or not scores.flags.c_contiguous:
        return None
    target = library.dense(target, np.int64)
    losses, logs = library.empty(rows, np.float32), library.empty(rows, np.float32)
    library.ox_cross_entropy(
        rows, address(scores), address(target), address(losses), address(logs), attributes.get("ignore_index", -100),
        classes,
    )  # fmt: skip
    return losses, logs


def mean_cross_entropy(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """MeanCrossEntropy."""
    found = cross_entropy(library, arrays, attributes)
    if found is None:
        return None
    losses, logs = found
    loss, count = library.empty((), np.float32), library.empty((), np.float32)
    library.call(_mean, losses, arrays[1], attributes.get("ignore_index", -100), loss, count)
    return loss, logs, count


def _mean(losses: Any, target: Any, ignored: int, loss: Any, count: Any) -> None:
    """Writes the mean of the losses whose targets count, and how many these are."""
    count[...] = losses.size - np.count_nonzero(target == ignored)
    loss[...] = np.add.reduce(losses) / count if count else np.nan


def mean_smoothed_cross_entropy(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """MeanSmoothedCrossEntropy without weights."""
    scores, target, weight = [*arrays, None][:3]
    rows, classes = scores.shape
    if weight is not None or not scores.size or target.shape != (rows,) or not scores.flags.c_contiguous:
        return None
    target, ignored = library.dense(target, np.int64), attributes.get("ignore_index", -100)
    losses, logs, spreads = (library.empty(rows, np.float32) for _ in range(3))
    library.ox_weighted_cross_entropy(
        rows, address(scores), address(target), 0, address(losses), address(logs), address(spreads), ignored, classes
    )
    library.call(_mix, losses, spreads, attributes["smoothing"])
    loss, count = library.empty((), np.float32), library.empty((), np.float32)
    library.call(_mean, losses, arrays[1], ignored, loss, count)
    return loss, logs, count


def _mix(losses: Any, spreads: Any, smoothing: float) -> None:
    """Makes of `losses` those with label smoothing, and overwrites `spreads`."""
    losses *= np.float32(1 - smoothing)
    spreads *= np.float32(smoothing)
    losses += spreads


def smoothed_cross_entropy_gradient(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """SmoothedCrossEntropyGradient without weights."""
    g, scores, target, _, weight = [*arrays, None][:5]
    rows, classes = scores.shape
    if weight is not None or not scores.size or g.shape or target.shape != (rows,) or not scores.flags.c_contiguous:
        return None
    target, smoothing = library.dense(target, np.int64), attributes["smoothing"]
    direct, spread = library.empty(rows, np.float32), library.empty(rows, np.float32)
    library.call(np.multiply, g, np.float32(1 - smoothing), direct)
    library.call(np.multiply, g, np.float32(smoothing), spread)
    result = library.empty_like(scores)
    library.ox_weighted_cross_entropy_backward(
        rows, address(scores), address(target), 0, address(direct), address(spread), address(result), classes,
        attributes.get("ignore_index", -100), classes,
    )  # fmt: skip
    return result


def cross_entropy_gradient(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """CrossEntropyGradient."""
    g, scores, target, _ = arrays
    rows, classes = scores.shape
    if not scores.size or target.shape != (rows,):
        return None
    if g.shape != (rows,):
        if g.ndim:
            return None
        cotangents = library.empty(rows, np.float32)
        library.call(np.copyto, cotangents, g)
        g = cotangents
    if not scores.flags.c_contiguous:
        return None
    g, target = library.dense(g), library.dense(target, np.int64)
    result = library.empty_like(scores)
    library.ox_cross_entropy_backward(
        rows,
        address(g),
        address(scores),
        address(target),
        address(result),
        attributes.get("ignore_index", -100),
        classes,
    )
    return result


def weighted_cross_entropy(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """WeightedCrossEntropy."""
    scores, target, weight = [*arrays, None][:3]
    rows, classes = scores.shape
    if not scores.size or target.shape != (rows,) or not scores.flags.c_contiguous:
        return None
    target, weight = np.ascontiguousarray(target, np.int64), _class_weights(weight)
    losses, logs = np.empty(rows, np.float32), np.empty(rows, np.float32)
    count = attributes.get("outputs", 1)
    spreads = np.empty(rows, np.float32) if count == 3 else None
    library.ox_weighted_cross_entropy(
        rows, address(scores), address(target), _place(weight), address(losses), address(logs), _place(spreads),
        attributes["ignore_index"], classes,
    )  # fmt: skip
    return losses if count == 1 else (losses, logs, spreads)[:count]


def weighted_cross_entropy_gradient(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """WeightedCrossEntropyGradient."""
    scores, target, _, weight, g, to_spread = [*arrays, None, None, None][:6]
    rows, classes = scores.shape
    if not scores.size or any(a is not None and a.shape != (rows,) for a in (target, g, to_spread)):
        return None
    if not scores.flags.c_contiguous:
        return None
    target, weight = np.ascontiguousarray(target, np.int64), _class_weights(weight)
    g, to_spread = (None if a is None else np.ascontiguousarray(a) for a in (g, to_spread))
    result = np.empty_like(scores)
    library.ox_weighted_cross_entropy_backward(
        rows, address(scores), address(target), _place(weight), _place(g), _place(to_spread),
        address(result), classes if weight is None else float(weight.sum()), attributes["ignore_index"], classes,
    )  # fmt: skip
    return result


def soft_cross_entropy(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """SoftCrossEntropy."""
    scores, target, weight = [*arrays, None][:3]
    rows, classes = scores.shape
    if not scores.size or target.shape != scores.shape or not scores.flags.c_contiguous:
        return None
    target, weight = np.ascontiguousarray(target), _class_weights(weight)
    losses, logs = np.empty(rows, np.float32), np.empty(rows, np.float32)
    smoothing = attributes["smoothing"]
    library.ox_soft_cross_entropy(
        rows, address(scores), address(target), _place(weight), address(losses), address(logs), 1 - smoothing,
        smoothing / classes, classes,
    )  # fmt: skip
    return losses if attributes.get("outputs") == 1 else (losses, logs)


def soft_cross_entropy_gradient(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """SoftCrossEntropyGradient."""
    g, scores, target, _, weight = [*arrays, None][:5]
    rows, classes = scores.shape
    if not scores.size or target.shape != scores.shape or g.shape != (rows,):
        return None
    if not scores.flags.c_contiguous:
        return None
    g, target, weight = np.ascontiguousarray(g), np.ascontiguousarray(target), _class_weights(weight)
    result, smoothing = np.empty_like(scores), attributes["smoothing"]
    library.ox_soft_cross_entropy_backward(
        rows, address(g), address(scores), address(target), _place(weight), address(result), 1 - smoothing,
        smoothing / classes, classes,
    )  # fmt: skip
    return result


def _class_weights(weight: Any) -> Any:
    return None if weight is None else np.ascontiguousarray(weight)


def _place(a: Any) -> int:
    return 0 if a is None else address(a)


def gather(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """Gather of whole rows: along the first axis."""
    rows, places = arrays
    if attributes.get("axis", 0) not in (0, -rows.ndim) or not rows.size or not places.size:
        return None
    if not rows.flags.c_contiguous or places.min() < -len(rows) or places.max() >= len(rows):
        return None
    result = np.empty((*places.shape, *rows.shape[1:]), np.float32)
    places = np.ascontiguousarray(places, np.int64)  # of a single place an array of one dimension
    library.ox_take_rows(
        len(rows), places.size, rows.size // len(rows), address(places), address(rows), address(result)
    )
    return result


def index_add(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """IndexAdd."""
    rows, places = arrays
    if not rows.size or places.shape != rows.shape[:1] or not rows.flags.c_contiguous:
        return None
    places = np.ascontiguousarray(places, np.int64)
    result = np.empty((attributes["size"], *rows.shape[1:]), np.float32)
    library.ox_index_add(
        len(result), len(rows), rows.size // len(rows), address(places), address(rows), address(result)
    )
    return result
