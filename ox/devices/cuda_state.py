"""Whether this process has arrays on a GPU (until then no call looks for one), and which module computes on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

in_use = False  # set by ox.devices.cuda when the first array is made there

_module: ContextVar[Any] = ContextVar("module for arrays on a GPU", default=None)


def module(cupy: Any) -> Any:
    """CuPy, or what stands for it in this context."""
    return _module.get() or cupy


@contextmanager
def standing_in(other: Any) -> Iterator[None]:
    """Let operators on a GPU compute with another module than CuPy."""
    token = _module.set(other)
    try:
        yield
    finally:
        _module.reset(token)
