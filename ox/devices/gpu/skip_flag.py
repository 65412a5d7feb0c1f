"""A number on a GPU that says whether the step of an optimizer that runs now is to do nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_flag: ContextVar[Any] = ContextVar("float32, not 0 to do nothing", default=None)


@contextmanager
def skipping_where(flag: Any) -> Iterator[None]:
    """Let steps do nothing where a float32 number on the GPU is not 0; only those that read `skip_flag` know of it."""
    token = _flag.set(flag)
    try:
        yield
    finally:
        _flag.reset(token)


def skip_flag() -> Any:
    """The number; None where steps are taken."""
    return _flag.get()
