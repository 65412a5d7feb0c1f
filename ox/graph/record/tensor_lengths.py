"""``len(x)`` of a tensor in a recording.

Python makes a plain number of what ``__len__`` returns, and so a size that varies would become a constant of the graph.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from ox.core.mode import MODE
from ox.core.tensor import TensorBase

_plain = builtins.len
_lock = Lock()
_users = 0


def _length(x: Any, /) -> int:
    """`len`, which gives the size of a tensor as the recording of this context knows it."""
    if isinstance(x, TensorBase) and x.ndim and MODE.get().recording is not None:
        return x.shape[0]
    return _plain(x)


@contextmanager
def lengths_as_sizes() -> Iterator[None]:
    """Within, ``len(x)`` of a tensor in a recording is ``x.shape[0]``. The name `len` is Python's own again behind it,
    also where several threads record."""
    global _users
    with _lock:
        _users += 1
        vars(builtins)["len"] = _length
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                vars(builtins)["len"] = _plain
