"""The interface of loggers: they get the values of each step and each epoch."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import numpy as np

from ox.errors import TrainError


class Logger:
    """The base class of all loggers: `step`, `epoch`, `flush`, `close`; a context manager.

    Values are dicts by name, each with ``"step"``. The constructor of a logger gets the current `step` of the run and
    removes what a killed process wrote after it.
    """

    def step(self, values: dict[str, Any]) -> None:
        """One training step: step, epoch, loss, lr."""

    def epoch(self, values: dict[str, Any]) -> None:
        """One epoch: the mean training loss and the validation metrics."""

    def flush(self) -> None:
        """Writes everything to the operating system; called before each checkpoint, so that the log is never behind
        it."""

    def close(self) -> None:
        """Flushes and closes the files."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Loggers(Logger):
    """Combines several loggers.

    Raises:
        TrainError: a logger could not write.
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
            if error is None:  # else the exception in the context is the one to report
                raise


def to_python(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"a logger accepts numbers, strings and lists of them, not {type(value).__name__}")
