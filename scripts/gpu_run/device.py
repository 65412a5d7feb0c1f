"""For the programs of the steps: the device or what stands in for it, and where their findings go."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def stand_in() -> str:
    """The name of what stands in for a GPU; "" on a machine that has one."""
    return os.environ.get("GPU_STAND_IN", "")


def prepare() -> None:
    """To be called before CuPy is imported."""
    if stand_in():
        import host_cuda

        host_cuda.install()


def short() -> bool:
    """Whether this run is one that only tries everything out."""
    return os.environ.get("GPU_QUICK") == "1"


def write(findings: dict[str, Any], file: str | Path | None = None) -> None:
    """Write the findings to the file that the command line names, whole or not at all."""
    target = Path(file or sys.argv[1])
    part = target.with_suffix(".part")
    part.write_text(json.dumps(findings, indent=1))
    part.replace(target)


def one_line(error: BaseException) -> str:
    """An error in a line."""
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].strip()[:300]}" if lines else type(error).__name__
