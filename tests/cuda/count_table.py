"""Numbers of what a GPU is asked to do, kept in a file: they may fall, and not rise. Only host_cuda counts them.

With OX_WRITE_COUNTS=1 the file is written again:

    OX_WRITE_COUNTS=1 make hostcuda ARGS="tests/cuda/test_user_lines.py tests/cuda/test_step_counts.py"
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


class CountTable:
    """The numbers of one file of tests, by name."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.writes = os.environ.get("OX_WRITE_COUNTS") == "1"
        self.known: dict[str, dict[str, int]] = json.loads(file.read_text()) if file.exists() else {}
        self.found: dict[str, dict[str, int]] = {}

    @contextmanager
    def counting(self, name: str, counters: Sequence[str]) -> Iterator[None]:
        """Count what the block does. Numbers that are not in the file have to be 0."""
        host_cuda = sys.modules.get("host_cuda")
        if host_cuda is None:
            yield
            return
        with host_cuda.counting() as counts:
            yield
        found = {counter: counts[counter] for counter in counters if counts[counter]}
        self.found[name] = found
        known = self.known.get(name, {})
        more = {counter: number for counter, number in found.items() if number > known.get(counter, 0)}
        assert self.writes or not more, f"{name}: {found}, and {known} in {self.file.name} (tests/cuda/count_table.py)"

    def close(self) -> None:
        """Write the file, if that is asked for."""
        if self.writes and self.found:
            table = {name: found for name, found in (self.known | self.found).items() if found}
            lines = [f"{json.dumps(name)}: {json.dumps(table[name])}" for name in sorted(table)]
            self.file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
