"""What a logger is: something that is told each step and each epoch, in plain values."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import numpy as np

from ox.errors import TrainError


class Logger:
    """The base of all loggers, and the whole protocol: `step`, `epoch`, `flush`, `close`; a context manager.

    Values are dicts by name; ``"step"`` stands in each. Every logger takes, when it is made, the `step` that the run
    stands at, and takes back what a killed process wrote of later steps.
    """

    def step(self, values: dict[str, Any]) -> None:
        """One training step: step, epoch, loss, lr."""

    def epoch(self, values: dict[str, Any]) -> None:
        """One epoch: the mean training loss and what validation gave."""

    def flush(self) -> None:
        """Hand everything to the operating system; called before each checkpoint, so that lines are never behind it."""

    def close(self) -> None:
        """Flush, and let go of the files."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Loggers(Logger):
    """Several as one. A disk that refuses is one clear error.

    Raises:
        TrainError: from each method, where a logger could not write.
    """

    def __init__(self, loggers: Iterable[Logger]) -> None:
        self.loggers = list(loggers)

    def step(self, values: dict[str, Any]) -> None:
        self._all("step", values)

    def epoch(self, values: dict[str, Any]) -> None:
        self._all("epoch", values)

    def flush(self) -> None:
        self._all("flush")

    def close(self) -> None:
        self._all("close")

    def _all(self, method: str, *values: Any) -> None:
        error: OSError | None = None
        for logger in self.loggers:
            try:
                getattr(logger, method)(*values)
            except OSError as refused:
                error = refused
        if error is not None:
            raise TrainError(
                "what the run measured could not be written",
                got=f"{type(error).__name__}: {error.strerror or error}",
                hint="make room, then ox train --resume: the last checkpoint is whole",
            ) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except TrainError:
            if error is None:  # else what went wrong first is what is told
                raise


def plain(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"a logger takes numbers, strings and lists of them, not a {type(value).__name__}")
