"""A folder that the workers of a server share. It holds texts of clients, and is gone when its server is."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

from ox.file_lock import lock_file

MEMORY = Path("/dev/shm")  # of Linux: what lies there is on no disk
PREFIX, NEW = "ox-workers-", "ox-begin-"
LOCK = "lock"


class SharedFolder:
    """Made in memory if possible. Its process holds a lock on it, by which later ones tell the folders of those that
    were killed, and remove them.

    Args:
        parents: where to try; None for the system's folder of temporary files.

    Attributes:
        path: None where nothing can be written.
    """

    def __init__(self, parents: tuple[Path | None, ...] = (MEMORY, None)) -> None:
        self.path: Path | None = None
        for parent in parents:
            with suppress(OSError):
                self.path, lock = _make(Path(tempfile.gettempdir()) if parent is None else parent)
                # at the end of the process at the latest
                self._finalizer = weakref.finalize(self, _remove, self.path, lock)
                return

    def close(self) -> None:
        """Removes the folder."""
        if self.path is not None:
            self._finalizer()


def _make(parent: Path) -> tuple[Path, int]:
    for folder in parent.glob(PREFIX + "*"):
        _remove_abandoned(folder)
    begin = Path(tempfile.mkdtemp(prefix=NEW, dir=parent))
    lock = os.open(begin / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    lock_file(lock)
    # only now it has the name that others look for: nobody sees it without its lock
    return begin.rename(parent / begin.name.replace(NEW, PREFIX, 1)), lock


def _remove(path: Path, lock: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    os.close(lock)


def _remove_abandoned(folder: Path) -> None:
    """Removes a folder whose process has ended; those of others and of other users stay."""
    with suppress(OSError):
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
        try:
            if lock_file(lock):  # else its process runs
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
