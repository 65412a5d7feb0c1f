"""Which functions with free variables there are."""

from __future__ import annotations

import gc
from types import CodeType, FrameType, FunctionType
from typing import Any
from weakref import ref

from ox.core import heap


class Closures:
    """Finds the functions that a frame may run. To find one is to look at all objects of the process, so those of a
    module are found together, and what the call makes later is left out: its variables are the call's own."""

    def __init__(self) -> None:
        self._known: dict[CodeType, list[ref[FunctionType]]] = {}
        self._modules: dict[int, dict[str, Any]] = {}

    def of(self, frame: FrameType) -> list[FunctionType]:
        """The functions with the code of a frame, and with free variables."""
        if id(frame.f_globals) not in self._modules:
            self._modules[id(frame.f_globals)] = frame.f_globals
            with heap.whole():
                users = gc.get_referrers(frame.f_globals)
            for each in users:
                if type(each) is FunctionType and each.__closure__:
                    self._known.setdefault(each.__code__, []).append(ref(each))
        found = (reference() for reference in self._known.get(frame.f_code, ()))
        return [function for function in found if function is not None]
