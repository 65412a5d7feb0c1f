"""Errors of what a GPU does while the host goes on: indices and classes that are out of range, collectives that fail.

The host does not wait to hear of them. A kernel that meets a wrong value writes which check failed, and the value, into
memory of the host; when the host next waits for the device, `raise_if_wrong` raises the error. With
``CUDA_LAUNCH_BLOCKING=1`` in the environment it is raised by the call that was wrong, in the line of the user. Of a
recorded call the line is known (`at`); the check is a part of its CUDA graph.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import numpy as np

from ox.devices import cuda_state
from ox.errors import OxError

at_once = os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0")

_checks: dict[tuple[type[OxError], str, int, int, str], int] = {}  # numbers from 1 on
_place: ContextVar[str] = ContextVar("the line of the user where it is known", default="")


@cache
def _record() -> tuple[Any, Any]:
    """Three int64 numbers in memory that both sides read: the check that failed, the value, and 1 from when a thread
    begins to write these; and that memory."""
    cuda = sys.modules["cupy"].cuda
    memory = cuda.pinned_memory.PinnedMemory(24)
    pointer = cuda.PinnedMemoryPointer(memory, 0)
    record: Any = np.frombuffer(pointer, np.int64, 3)
    record[:] = 0
    return record, memory


def address() -> int:
    """What kernels are given for `record`."""
    return int(_record()[1].ptr)


def check(error: type[OxError], what: str, low: int, high: int) -> int:
    """The number of a check: values from `low` to `high`, or the error says `what`."""
    return _checks.setdefault((error, what, low, high, _place.get()), len(_checks) + 1)


@contextmanager
def at(place: str) -> Iterator[None]:
    """A block of which the errors name this line: that of the call that is run again."""
    token = _place.set(place)
    try:
        yield
    finally:
        _place.reset(token)


_told: list[OxError] = []  # errors of operations on streams, that no call has raised yet


def tell(error: OxError) -> None:
    """Let the next call of `raise_if_wrong` raise this: for threads that watch what a stream does."""
    _told.append(error)


def raise_told() -> None:
    """Raise the first error that was told and that no call has raised yet."""
    if _told:
        raise _told.pop(0)


def raise_if_wrong() -> None:
    """Raise the error of the first check that failed since the last time. To be called after the host has waited."""
    raise_told()
    if not cuda_state.in_use or not _checks:
        return
    record, _ = _record()
    number, value = int(record[0]), int(record[1])
    if not number:
        return
    record[:] = 0
    error, what, low, high, place = next(key for key, each in _checks.items() if each == number)
    known = at_once or place
    hint = None if known else "CUDA_LAUNCH_BLOCKING=1 in the environment: then the call that was wrong raises"
    where = place or (None if at_once else "")
    raise error(what, expected=f"{low} to {high}", got=str(value), hint=hint, where=where)


def after_launch() -> None:
    """With CUDA_LAUNCH_BLOCKING: wait for the kernel that was just launched, and raise its error."""
    if at_once:
        sys.modules["cupy"].cuda.get_current_stream().synchronize()
        raise_if_wrong()
