"""Runs of training that end in the middle."""

from __future__ import annotations

from typing import Any

from ox.train.run.loop import Silent


class StopAfter(Silent):
    """Stops the process's own run, as a kill would, after so many steps."""

    def __init__(self, after: int) -> None:
        self.after = after

    def step(self, trainer: Any, rate: float) -> None:
        if trainer.progress.step == self.after:
            raise KeyError("killed")
