"""SIGINT and SIGTERM while a command still imports: nothing has been begun, so there is nothing to drain."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def early_stop() -> Iterator[None]:
    """Until the block ends, or takes the signals over itself, they end the process with exit code 0."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, _leave) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _leave(number: int, frame: FrameType | None) -> None:
    """Not by an exception: an import that is interrupted may swallow it, or make another one of it."""
    os.write(1, b"stopped after 0 answers\n")
    os._exit(0)
