"""SIGINT and SIGTERM while a command still imports: no work has started, so the process ends at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def early_stop() -> Iterator[None]:
    """Within the block SIGINT and SIGTERM end the process with exit code 0, until the block sets its own handlers."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, _leave) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _leave(number: int, frame: FrameType | None) -> None:
    """Ends the process without an exception: an interrupted import may swallow or replace an exception."""
    os.write(1, b"stopped after 0 answers\n")
    os._exit(0)
