"""``len(x)`` of a tensor in a recording.

Python makes a plain number of what ``__len__`` returns, and so a size that varies would become a constant of the graph.
"""

from __future__ import annotations

import builtins
from typing import Any

from ox.core.mode import MODE
from ox.core.tensor import TensorBase
from ox.graph.record.replaced_functions import replacing

_plain = builtins.len


def _length(x: Any, /) -> int:
    """`len`, which gives the size of a tensor as the recording of this context knows it."""
    if isinstance(x, TensorBase) and x.ndim and MODE.get().recording is not None:
        return x.shape[0]
    return _plain(x)


lengths_as_sizes = replacing(builtins, {"len": _length})  # within, ``len(x)`` in a recording is ``x.shape[0]``
