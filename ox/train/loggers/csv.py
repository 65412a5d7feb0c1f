"""steps.csv and epochs.csv: tables for a spreadsheet."""

from __future__ import annotations

import csv
import os
from io import StringIO
from pathlib import Path
from typing import IO, Any

from ox.serialization.files import write_whole
from ox.train.loggers.logger import Logger


class CSV(Logger):
    """Writes ``steps.csv`` and ``epochs.csv``, one row per step and epoch; the first row determines the columns. Lists
    and dicts are left out.

    Args:
        folder: where the files are.
        step: the current step of the run; rows of later steps, written by a killed process, are removed.
    """

    def __init__(self, folder: str | os.PathLike[str], step: int = 0) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        self._tables = [_Table(Path(folder) / name, step) for name in ("steps.csv", "epochs.csv")]

    def step(self, values: dict[str, Any]) -> None:
        self._tables[0].add(values)

    def epoch(self, values: dict[str, Any]) -> None:
        self._tables[1].add(values)

    def flush(self) -> None:
        for table in self._tables:
            table.flush()

    def close(self) -> None:
        for table in self._tables:
            table.close()


class _Table:
    """One file; it is created with the first row."""

    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        self.columns: list[str] = []
        self.file: IO[str] | None = None
        if path.is_file():
            self._trim(step)

    def _trim(self, step: int) -> None:
        text = self.path.read_bytes().decode("utf-8", "replace")
        reader = csv.DictReader(StringIO(text[: text.rfind("\n") + 1], newline=""))  # a kill may have torn the last row
        self.columns = list(reader.fieldnames or [])
        whole = [row for row in reader if None not in row.values() and (row.get("step") or "").isdecimal()]
        kept = StringIO(newline="")
        writer = csv.DictWriter(kept, self.columns)
        writer.writeheader()
        writer.writerows(row for row in whole if int(row["step"]) <= step)

        def write(temporary: Path) -> None:
            temporary.write_text(kept.getvalue(), encoding="utf-8", newline="")

        write_whole(self.path, write)

    def add(self, values: dict[str, Any]) -> None:
        cells = {name: value for name, value in values.items() if not isinstance(value, (list, dict))}
        new = not self.columns
        self.columns = self.columns or list(cells)
        if self.file is None:
            self.file = open(self.path, "a", newline="", encoding="utf-8")  # noqa: SIM115 (closed by close)
        writer = csv.DictWriter(self.file, self.columns, extrasaction="ignore")
        if new:
            writer.writeheader()
        writer.writerow(cells)

    def flush(self) -> None:
        if self.file is not None:
            self.file.flush()

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
