"""Whether this process has arrays on a GPU (until then no call looks for one), and which module computes on them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import numpy as np

in_use = False  # set by ox.devices.cuda when the first array is made there
array_type: type | tuple[()] = ()  # that of arrays on a GPU; set when CuPy is loaded
several = False  # whether there is more than one GPU; set when CuPy is loaded

_moves: ContextVar[bool] = ContextVar("whether arrays of the host are taken along", default=False)
_nothing = nullcontext()
_module: ContextVar[Any] = ContextVar("module for arrays on a GPU", default=None)


def module(cupy: Any) -> Any:
    """CuPy, or what stands for it in this context."""
    return _module.get() or cupy


def at(*arrays: Any) -> AbstractContextManager[Any]:
    """A block that runs on the GPU of the first array that is on one: what is launched and made there belongs to it."""
    if several:
        for array in arrays:
            # an array of NumPy is not asked for its data: there is no buffer of bfloat16
            data: Any = None if isinstance(array, np.ndarray) else getattr(array, "data", None)
            if hasattr(data, "device_id"):
                return _on(data.device_id)
    return _nothing


def copy(array: Any) -> Any:
    """A copy of an array, row by row, where the array is: CuPy's own goes to the current device."""
    with at(array):
        return array.copy(order="C")


def _on(number: int) -> AbstractContextManager[Any]:
    cuda = sys.modules["cupy"].cuda
    device: AbstractContextManager[Any] = cuda.Device(number)
    return _nothing if cuda.runtime.getDevice() == number else device


@contextmanager
def standing_in(other: Any) -> Iterator[None]:
    """Let operators on a GPU compute with another module than CuPy."""
    token = _module.set(other)
    try:
        yield
    finally:
        _module.reset(token)


def taking_host_arrays_along() -> AbstractContextManager[None]:
    """Within ox's own code (gradient rules, bodies of functions), which makes iotas, masks and constants on the host:
    operators on a GPU copy what meets them there. Elsewhere that is an error of the user."""
    return _taking_along() if in_use else _nothing


@contextmanager
def _taking_along() -> Iterator[None]:
    token = _moves.set(True)
    try:
        yield
    finally:
        _moves.reset(token)


def takes_host_arrays_along() -> bool:
    """Whether this is such code."""
    return _moves.get()
