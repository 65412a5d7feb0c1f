"""What a run measured, as it measures it: a line of JSON a step and an epoch, and the same for TensorBoard."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ox.train.run import Run, write_text


class Metrics:
    """Appends to metrics.jsonl and to the TensorBoard events of a run.

    Args:
        run: where to.
        step: the step that the run stands at; lines of later steps, left by a killed process, are removed.
    """

    def __init__(self, run: Run, step: int = 0) -> None:
        from tensorboardX import SummaryWriter

        trim(run.metrics, step)
        self._lines = open(run.metrics, "a", encoding="utf-8")  # noqa: SIM115 (closed by close)
        self._board = SummaryWriter(str(run.folder), purge_step=step + 1 if step else None, flush_secs=10)

    def step(self, values: dict[str, Any]) -> None:
        """One training step: step, epoch, loss, lr."""
        self._write(values)
        self._board.add_scalar("train/loss", values["loss"], values["step"])
        self._board.add_scalar("train/lr", values["lr"], values["step"])

    def epoch(self, values: dict[str, Any]) -> None:
        """One epoch: the mean training loss and what validation gave."""
        self._write(values)
        for name, value in values.items():
            if isinstance(value, float) and name not in ("lr", "seconds"):
                self._board.add_scalar(f"epoch/{name}", value, values["step"])

    def _write(self, values: dict[str, Any]) -> None:
        self._lines.write(json.dumps(values) + "\n")

    def flush(self) -> None:
        """Hand everything to the operating system; called before each checkpoint, so that lines are never behind it."""
        self._lines.flush()

    def close(self) -> None:
        self._lines.close()
        self._board.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read(path: Path) -> list[dict[str, Any]]:
    """Every whole line of a metrics.jsonl."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            value = json.loads(line)
        except ValueError:  # torn by a kill
            continue
        if isinstance(value, dict):
            lines.append(value)
    return lines


def trim(path: Path, step: int) -> None:
    """Keep the whole lines up to `step`."""
    if path.is_file():
        kept = [line for line in read(path) if line.get("step", 0) <= step]
        write_text(path, "".join(json.dumps(line) + "\n" for line in kept))
