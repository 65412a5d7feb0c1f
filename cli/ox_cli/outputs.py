"""Checks, before a command starts its work, that its output files can be written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ox.errors import OxError, WriteError

HINT = "a file in a folder that exists and can be written"


def check(*paths: Path | None) -> None:
    """Checks that each path can be written, without changing any file.

    Raises:
        WriteError: a path cannot be written, or two paths are the same.
    """
    outputs = [path for path in paths if path is not None]
    for number, path in enumerate(outputs):
        try:
            is_new = not os.path.lexists(path)
            if path.is_file() or is_new:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o666))
            elif not os.access(path, os.W_OK) or path.is_dir():
                raise _write_error(path, "it is not a file" if path.is_dir() else "it cannot be written")
            if is_new:
                path.unlink()
        except WriteError:
            raise
        except (OSError, ValueError) as error:
            raise _write_error(path, error) from None
        if path.resolve() in [other.resolve() for other in outputs[:number]]:
            raise _write_error(path, "another output has the same name")


def write(path: Path, write_file: Callable[[], object]) -> None:
    """Calls `how`, and turns its errors into the same WriteError."""
    try:
        write_file()
    except (OSError, ValueError) as error:
        if isinstance(error, OxError):
            raise
        raise _write_error(path, error) from None


def _write_error(path: Path, why: Exception | str) -> WriteError:
    return WriteError(f"{path} cannot be written", got=str(getattr(why, "strerror", None) or why), hint=HINT)
