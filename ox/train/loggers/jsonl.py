"""metrics.jsonl: a line of JSON a step and an epoch."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ox.files import write_whole
from ox.train.loggers.logger import Logger, plain


class JSONL(Logger):
    """Appends a line of JSON a step and an epoch.

    Args:
        path: of the file.
        step: the step that the run stands at; lines of later steps, left by a killed process, are removed.
    """

    def __init__(self, path: str | os.PathLike[str], step: int = 0) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        trim(Path(path), step)
        self._lines = open(path, "a", encoding="utf-8")  # noqa: SIM115 (closed by close)

    def step(self, values: dict[str, Any]) -> None:
        self._lines.write(json.dumps(values, default=plain) + "\n")

    epoch = step

    def flush(self) -> None:
        self._lines.flush()

    def close(self) -> None:
        self._lines.close()


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
        kept = "".join(json.dumps(line) + "\n" for line in read(path) if line.get("step", 0) <= step)

        def write(temporary: Path) -> None:
            temporary.write_text(kept, encoding="utf-8")

        write_whole(path, write)
