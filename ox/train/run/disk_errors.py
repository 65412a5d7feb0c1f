"""The error of a file that cannot be written: needed, free and missing space."""

from __future__ import annotations

import shutil
from pathlib import Path

from ox.errors import TrainError


def write_error(what: str, path: Path, error: BaseException, needed: int, hint: str) -> TrainError:
    """The error for a file of `needed` bytes that could not be written."""
    extra = {"needed": amount(needed)}
    try:
        free = shutil.disk_usage(path.parent).free
    except OSError:
        pass
    else:
        extra["free"] = amount(free)
        if free < needed:
            extra["missing"] = amount(needed - free)
    got = getattr(error, "got", None) or str(error)
    return TrainError(what, where=str(path), extra=extra, got=f"{type(error).__name__}: {got}", hint=hint)


def amount(count: int) -> str:
    """``3.2 MB``, ``245.9 kB``."""
    for unit, size in (("GB", 10**9), ("MB", 10**6)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count / 1000:.1f} kB"
