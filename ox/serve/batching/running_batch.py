"""A running batch, which can be stopped when its outcome is not needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ox.serve.batching.job import Job


class Control(Protocol):
    """The stop flag that a run checks; ONNX Runtime's RunOptions are one."""

    terminate: bool


class RunningBatch:
    """The jobs of a run, the control that ends it, and what is to be counted when it lands.

    A job belongs to it until it is delivered.
    """

    __slots__ = ("_complete", "cells", "control", "filled", "jobs", "large", "reason", "reserved_bytes", "split")

    def __init__(self, jobs: Sequence[Job], control: Control, reason: str) -> None:
        self.jobs, self.control, self.reason = jobs, control, reason
        self.split = False
        self.cells = self.filled = 0  # elements along padded dimensions, and how many of them are padding
        self.reserved_bytes = 0  # bytes of memory that are promised to its results
        self.large = False  # whether some of them are large
        self._complete = False
        for job in jobs:
            job.running_batch = self
        self._complete = True
        self.on_abandon()  # a client may have gone between the queue and here

    def on_abandon(self) -> None:
        """A job was abandoned: the last of them ends the run. A run that is over does not mind."""
        if not self._complete:  # another thread is still filling it: missing jobs look delivered
            return
        for job in self.jobs:
            if not job.abandoned and job.running_batch is self:
                return
        self.control.terminate = True
