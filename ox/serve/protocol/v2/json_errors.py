"""The error for tensor data in JSON that does not have the input's type: finds the first wrong element."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from ox.errors import ServeError
from ox.graph.contract import DTYPES, TensorInfo
from ox.serve.protocol.v2.document import quote

CHUNK = 4096  # elements checked at once; one by one they would block the event loop too long


def element_error(info: TensorInfo, code: str | None, data: list[Any]) -> ServeError:
    """The error for data with an element of a wrong type.

    Args:
        info: the input.
        code: the format character of struct for the type; None for BOOL, BYTES and BF16.
        data: the flat list.
    """
    what = f"the data of input '{info.name}' is not all {info.dtype}"
    if info.dtype == "BF16":
        return ServeError(what, got="JSON; BF16 exists only as binary data")
    for start in range(0, len(data), CHUNK):
        chunk = data[start : start + CHUNK]
        if _fits(chunk, info.dtype, code):
            continue
        place, value = next((place, each) for place, each in enumerate(chunk) if not _fits([each], info.dtype, code))
        return ServeError(what, got=f"{quote(value)} as element {start + place}", expected=_range(info.dtype))
    return ServeError(what, expected=_range(info.dtype))


def _fits(chunk: list[Any], dtype: str, code: str | None) -> bool:
    kinds = set(map(type, chunk))
    if code is None:
        return kinds <= {str if dtype == "BYTES" else bool}
    try:
        struct.pack(f"<{len(chunk)}{code}", *chunk)
    except (struct.error, OverflowError, TypeError):
        return False
    return bool not in kinds


def _range(dtype: str) -> str:
    if dtype in ("BOOL", "BYTES"):
        return "true or false" if dtype == "BOOL" else "strings"
    if dtype[0] == "F":
        most = np.finfo(DTYPES[dtype]).max
        return f"numbers from {-most:g} to {most:g}, not true or false"
    bounds = np.iinfo(DTYPES[dtype])
    return f"whole numbers from {bounds.min} to {bounds.max}, not true or false"
