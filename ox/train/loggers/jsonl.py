"""metrics.jsonl: one line of JSON per step and per epoch."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ox.serialization.files import write_whole
from ox.train.loggers.logger import Logger, to_python


class JSONL(Logger):
    """Appends one line of JSON per step and per epoch.

    Args:
        path: the file.
        step: the current step of the run; lines of later steps, written by a killed process, are removed.
    """

    def __init__(self, path: str | os.PathLike[str], step: int = 0) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        trim(Path(path), step)
        self._lines = open(path, "a", encoding="utf-8")  # noqa: SIM115 (closed by close)

    def step(self, values: dict[str, Any]) -> None:
        self._lines.write(json.dumps(values, default=to_python) + "\n")

    epoch = step

    def flush(self) -> None:
        self._lines.flush()

    def close(self) -> None:
        self._lines.close()


def read(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a metrics.jsonl."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            value = json.loads(line)
        except ValueError:  # an incomplete line of a killed process
            continue
        if isinstance(value, dict):
            lines.append(value)
    return lines


def trim(path: Path, step: int) -> None:
    """Removes incomplete lines and those after `step`."""
    if path.is_file():
        kept = "".join(json.dumps(line) + "\n" for line in read(path) if line.get("step", 0) <= step)

        def write(temporary: Path) -> None:
            temporary.write_text(kept, encoding="utf-8")

        write_whole(path, write)
