"""What is said when a disk refuses: how much was needed, how much was free, how much is missing."""

from __future__ import annotations

import shutil
from pathlib import Path

from ox.errors import TrainError


def refused(what: str, path: Path, error: BaseException, needed: int, hint: str) -> TrainError:
    """The error for a file of `needed` bytes that could not be written."""
    extra = {"needed": megabytes(needed)}
    try:
        free = shutil.disk_usage(path.parent).free
    except OSError:
        pass
    else:
        extra["free"] = megabytes(free)
        if free < needed:
            extra["missing"] = megabytes(needed - free)
    told = getattr(error, "got", None) or str(error)
    return TrainError(what, where=str(path), extra=extra, got=f"{type(error).__name__}: {told}", hint=hint)


def megabytes(count: int) -> str:
    """``3.2 MB``; small counts in bytes."""
    return f"{count / 1e6:,.1f} MB" if count >= 100_000 else f"{count:,} bytes"
