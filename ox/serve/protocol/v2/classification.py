"""The classification extension: the highest values of an output as strings, "value:index" or "value:index:label"."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ox.errors import ServeError
from ox.graph.contract import Array, TensorInfo
from ox.serve.protocol.v2.document import quote

MAX_ELEMENTS = 1 << 18  # elements; sorting blocks the event loop
UNORDERED = ("BOOL", "BYTES")


def class_count(value: Any, info: TensorInfo) -> int:
    """The number of classes in the parameter `classification` of an output; 0 for none.

    Raises:
        ServeError: the value is not a number, or the datatype of the output has no order.
    """
    if type(value) is not int or not 0 <= value < 1 << 32:
        what = f"output '{info.name}' has a wrong classification"
        raise ServeError(what, expected="how many classes, a whole number", got=quote(value))
    if value and info.dtype in UNORDERED:
        what = f"output '{info.name}' is {info.dtype}, which has no highest values"
        raise ServeError(what, hint="the output without classification")
    return value


def classify(array: Array, count: int, info: TensorInfo, batched: bool = True) -> Array:
    """The `count` highest values of each row in descending order; equal values in the order of their indices.

    The first dimension counts rows if the model is `batched` and the dimension varies. Otherwise the whole output is
    one row. Rows are flattened. NaN is the lowest value.

    Raises:
        ServeError: the output has too many elements to sort.
    """
    if array.size > MAX_ELEMENTS:
        expected, hint = f"at most {MAX_ELEMENTS}", "the output itself, as binary data"
        what = f"output '{info.name}' is too large for classification"
        raise ServeError(what, status=413, expected=expected, got=f"{array.size} elements", hint=hint)
    batched = batched and bool(info.dims) and not isinstance(info.dims[0], int)
    width = math.prod(array.shape[1:]) if batched else array.size
    if not array.size:  # there may be very many rows
        return np.empty((array.shape[0], min(count, width)) if batched else (0,), object)
    rows = array.reshape(array.shape[0] if batched else 1, width)
    floating = info.dtype in ("FP16", "BF16", "FP32", "FP64")
    if floating and info.dtype != "FP64":
        rows = rows.astype(np.float32)
    if floating:  # argsort puts NaN last
        places = np.argsort(-rows, axis=1, kind="stable")[:, :count]
    else:  # integers may have no negative: reverse twice for a stable descending sort
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
