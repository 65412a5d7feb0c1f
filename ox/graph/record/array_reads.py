"""Reads of ``x.array`` by the user's code while a file is recorded: the values would be constants of the file."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from types import CodeType
from typing import Any

from ox.call_site import is_ox
from ox.core.tensor import TensorBase

BY_NAME = frozenset(("getattr", "vars", "__dict__", "attrgetter"))  # how an attribute is read by a text

_lock = Lock()
_watching = 0


@cache
def reads_arrays(code: CodeType) -> bool:
    """Whether a function reads ``x.array``, which no recording sees; ``numpy.array(...)`` is none of that."""
    if "array" in code.co_consts and BY_NAME.intersection(code.co_names):
        return True
    before = ""
    for i in dis.get_instructions(code):
        if i.opname == "LOAD_ATTR" and i.argval == "array" and before not in ("LOAD_GLOBAL", "LOAD_NAME"):
            return True
        before = i.opname
    return False


def _read(tensor: Any) -> Any:
    code = sys._getframe(1).f_code
    if not is_ox(code.co_filename) and reads_arrays(code):
        tensor._refuse_under_recording("x.array")
    return tensor.__dict__["array"]


def _write(tensor: Any, array: Any) -> None:
    tensor.__dict__["array"] = array


@contextmanager
def refuse_array_reads() -> Iterator[None]:
    """Inside, the user's code cannot read the array of a tensor that is being recorded; ox can."""
    global _watching
    with _lock:
        _watching += 1
        if _watching == 1:
            setattr(TensorBase, "array", property(_read, _write))  # noqa: B010  # for mypy
    try:
        yield
    finally:
        with _lock:
            _watching -= 1
            if not _watching:
                delattr(TensorBase, "array")
