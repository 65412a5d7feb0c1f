"""Temporary files and folders, and how those that a killed process left are told from those that a living one writes.

Each is locked (flock) while somebody writes it. The system lets go of a lock when its process ends, however it ends:
nothing has to be known of process numbers, which are used again, nor of other containers and hosts on a shared disk.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ox.file_lock import lock_file

ABANDONED = 3600.0  # seconds without a change after which, on a disk without locks, nobody writes a file any more
CLOSE_ON_EXEC, NO_FOLLOW = getattr(os, "O_CLOEXEC", 0), getattr(os, "O_NOFOLLOW", 0)  # not on Windows
LOCK = ".lock"  # the file that holds a temporary folder
PATTERN = ".*.tmp"  # the names of all files of `file_beside`, for fnmatch
MARK = r"\.[0-9a-f]{8}\.tmp"
ANY = re.compile(rf"\..+{MARK}")

_locked: set[int] = set()
_folders: dict[Path, int] = {}


def lock(handle: int) -> bool | None:
    """Lock an open file until it is closed: whether it is ours; None on a disk that has no locks. A fork of this
    process does not hold it on."""
    locked = lock_file(handle)
    if locked:
        _locked.add(handle)
    return locked


def close(handle: int) -> None:
    """Close what was opened, and let go of its lock."""
    _locked.discard(handle)
    os.close(handle)


def _in_a_fork() -> None:
    """A worker that outlives its parent must not hold what the parent held."""
    for handle in _locked:
        with suppress(OSError):
            os.close(handle)
    _locked.clear()
    _folders.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_fork)


@contextmanager
def file_beside(path: Path) -> Iterator[Path]:
    """A new, empty file in the folder of `path`, removed at the end if it is still there.

    What processes that were killed left beside `path` is removed first.

    Raises:
        OSError: the system refuses.
    """
    remove_abandoned(path.parent, re.compile(re.escape(f".{path.name}") + MARK))
    temporary, handle = _new_file(path)
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
        close(handle)


def _new_file(path: Path) -> tuple[Path, int]:
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR | CLOSE_ON_EXEC, 0o666)
        # between these two lines another process may have taken it for abandoned
        if lock(handle) is not False and temporary.exists():
            return temporary, handle
        os.close(handle)


@contextmanager
def folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """As `new_folder`, removed at the end."""
    path = new_folder(prefix, parent)
    try:
        yield path
    finally:
        remove_folder(path)


def new_folder(prefix: str, parent: Path | None = None) -> Path:
    """A new folder that only this user can look into, held until `remove_folder` or the end of this process. Those of
    the same prefix that killed processes left are removed first.

    Args:
        prefix: of its name; nobody else's names may begin so.
        parent: where; default: the system's folder for temporary files.

    Raises:
        OSError: the system refuses.
    """
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    remove_abandoned(parent, re.compile(re.escape(prefix) + ".*"))
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent)).resolve()
        try:
            handle = os.open(path / LOCK, os.O_CREAT | os.O_RDWR | CLOSE_ON_EXEC, 0o600)
        except OSError:
            path.rmdir()
            raise
        # between these two lines another process may have taken it for abandoned
        if lock(handle) is not False and (path / LOCK).exists():
            _folders[path] = handle
            return path
        os.close(handle)


def remove_folder(path: Path) -> None:
    """Remove what `new_folder` made, and let go of it."""
    shutil.rmtree(path, ignore_errors=True)
    handle = _folders.pop(path, None)
    if handle is not None:
        close(handle)


def remove_abandoned(parent: Path, names: re.Pattern[str] = ANY) -> None:
    """Remove the temporary files and folders of these names in `parent` that nobody writes any more.

    What cannot be read, judged or removed stays: this is never a reason to fail.
    """
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if names.fullmatch(entry.name):
                with suppress(OSError):
                    _remove_if_abandoned(Path(entry.path))


def _remove_if_abandoned(path: Path) -> None:
    about = path.lstat()
    if not (stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode)):
        return
    held = path / LOCK if stat.S_ISDIR(about.st_mode) else path
    handle, free = None, None
    with suppress(FileNotFoundError):  # a folder that is being made, or whose maker was killed at once
        handle = os.open(held, os.O_RDWR | NO_FOLLOW | CLOSE_ON_EXEC)
    try:
        if handle is not None:
            free = lock(handle)
        if free or (free is None and time.time() - about.st_mtime > ABANDONED):
            # under the lock: whoever has just made it, and could not lock it yet, makes another one
            shutil.rmtree(path) if held != path else path.unlink()
    finally:
        if handle is not None:
            close(handle)
