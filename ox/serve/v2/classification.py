"""The classification extension: an output's highest values as strings, "value:index" or "value:index:label"."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ox.errors import ServeError
from ox.graph.contract import Array, TensorInfo
from ox.serve.v2.document import quote

LARGEST = 1 << 18  # elements that are sorted while everybody else waits
UNORDERED = ("BOOL", "BYTES")


def count_of(value: Any, info: TensorInfo) -> int:
    """How many classes the parameter `classification` asks of an output; 0 for none.

    Raises:
        ServeError: it is no number, or the output has no order.
    """
    if type(value) is not int or not 0 <= value < 1 << 32:
        what = f"output '{info.name}' has a wrong classification"
        raise ServeError(what, expected="how many classes, a whole number", got=quote(value))
    if value and info.dtype in UNORDERED:
        what = f"output '{info.name}' is {info.dtype}, which has no highest values"
        raise ServeError(what, hint="the output without classification")
    return value


def classify(array: Array, count: int, info: TensorInfo, batched: bool = True) -> Array:
    """The `count` highest values of each row, highest first, of equal ones that of the lower index first.

    The first dimension is rows where the model is `batched` and leaves it free; else the whole output is one, and so is
    all of a row, however many dimensions it has. NaN is below everything.

    Raises:
        ServeError: the output is too large to be sorted.
    """
    if array.size > LARGEST:
        expected, hint = f"at most {LARGEST}", "the output itself, as binary data"
        what = f"output '{info.name}' is too large for classification"
        raise ServeError(what, status=413, expected=expected, got=f"{array.size} elements", hint=hint)
    batched = batched and bool(info.dims) and not isinstance(info.dims[0], int)
    width = math.prod(array.shape[1:]) if batched else array.size
    if not array.size:  # of which there may be very many rows
        return np.empty((array.shape[0], min(count, width)) if batched else (0,), object)
    rows = array.reshape(array.shape[0] if batched else 1, width)
    floating = info.dtype in ("FP16", "BF16", "FP32", "FP64")
    if floating and info.dtype != "FP64":
        rows = rows.astype(np.float32)
    if floating:  # NaN is sorted behind all numbers
        places = np.argsort(-rows, axis=1, kind="stable")[:, :count]
    else:  # what has no negative: reversed twice, so that a stable sort upwards gives a stable order downwards
        places = (width - 1 - np.argsort(rows[:, ::-1], axis=1, kind="stable"))[:, ::-1][:, :count]
    write = "{:f}:{}" if floating else "{}:{}"
    labels = info.labels or ()
    strings = [
        write.format(value, place) + (f":{labels[place]}" if place < len(labels) else "")
        for row, order in zip(rows, places, strict=True)
        for value, place in zip(row[order].tolist(), order.tolist(), strict=True)
    ]
    result = np.empty(len(strings), object)
    result[:] = strings
    return result.reshape(places.shape if batched else places.shape[1:])
