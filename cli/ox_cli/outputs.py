"""Whether the files that a command will write can be written: asked before its work, not found out after it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ox.errors import OxError, WriteError

HINT = "a file in a folder that exists and can be written"


def check(*paths: Path | None) -> None:
    """Leaves no trace: a file that was there keeps what it holds.

    Raises:
        WriteError: the system would refuse one of them, or two are the same.
    """
    given = [path for path in paths if path is not None]
    for number, path in enumerate(given):
        try:
            made = not os.path.lexists(path)
            if path.is_file() or made:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o666))
            elif not os.access(path, os.W_OK) or path.is_dir():
                raise _refused(path, "it is no file" if path.is_dir() else "it cannot be written")
            if made:
                path.unlink()
        except WriteError:
            raise
        except (OSError, ValueError) as error:
            raise _refused(path, error) from None
        if path.resolve() in [other.resolve() for other in given[:number]]:
            raise _refused(path, "another output has the same name")


def write(path: Path, how: Callable[[], object]) -> None:
    """What went wrong after all, in the same words."""
    try:
        how()
    except (OSError, ValueError) as error:
        if isinstance(error, OxError):
            raise
        raise _refused(path, error) from None


def _refused(path: Path, why: Exception | str) -> WriteError:
    return WriteError(f"{path} cannot be written", got=str(getattr(why, "strerror", None) or why), hint=HINT)
