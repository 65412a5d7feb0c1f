"""TensorBoard's events, written by tensorboardX."""

from __future__ import annotations

import os
from typing import Any

from ox.train.loggers.logger import Logger

CLOCK = ("lr", "seconds")  # of an epoch's row: no curves of their own


class TensorBoard(Logger):
    """Writes scalars: ``train/loss`` and the like a step, ``epoch/validation_loss`` and the like an epoch.

    Args:
        folder: where the events' file is made.
        step: the step that the run stands at; TensorBoard is told to drop what was written of later ones.
    """

    def __init__(self, folder: str | os.PathLike[str], step: int = 0) -> None:
        from tensorboardX import SummaryWriter

        self._board = SummaryWriter(os.fspath(folder), purge_step=step + 1 if step else None, flush_secs=10)

    def step(self, values: dict[str, Any]) -> None:
        self._scalars("train", values, ("step", "epoch"))

    def epoch(self, values: dict[str, Any]) -> None:
        self._scalars("epoch", values, ("step", "epoch", *CLOCK))

    def _scalars(self, group: str, values: dict[str, Any], without: tuple[str, ...]) -> None:
        for name, value in values.items():
            if isinstance(value, (int, float)) and name not in without:
                self._board.add_scalar(f"{group}/{name}", value, values["step"])

    def close(self) -> None:
        self._board.close()
