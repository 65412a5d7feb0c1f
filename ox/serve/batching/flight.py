"""A batch that is being run, so that it can be stopped when nobody wants its outcome any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ox.serve.batching.job import Job


class Control(Protocol):
    """What a run looks at while it goes on; ONNX Runtime's RunOptions are one."""

    terminate: bool


class Flight:
    """The jobs of a run, the control that ends it, and what is to be counted when it lands.

    A job belongs to it until it is delivered.
    """

    __slots__ = ("_boarded", "cells", "control", "filled", "granted", "jobs", "large", "reason", "split")

    def __init__(self, jobs: Sequence[Job], control: Control, reason: str) -> None:
        self.jobs, self.control, self.reason = jobs, control, reason
        self.split = False
        self.cells = self.filled = 0  # elements along padded dimensions, and how many of them are padding
        self.granted = 0  # bytes of memory that are promised to its results
        self.large = False  # whether some of them are large
        self._boarded = False
        for job in jobs:
            job.flight = self
        self._boarded = True
        self.left()  # a client may have gone between the queue and here

    def left(self) -> None:
        """A job was abandoned: the last of them ends the run. A run that is over does not mind."""
        if not self._boarded:  # another thread is still at it: jobs yet to board look as if they had been delivered
            return
        for job in self.jobs:
            if not job.abandoned and job.flight is self:
                return
        self.control.terminate = True
