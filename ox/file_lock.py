"""Locks of open files (``flock``), which the system releases when a process ends, however it ends."""

from __future__ import annotations

import errno

__all__ = ["lock_file"]


def lock_file(handle: int, shared: bool = False) -> bool | None:
    """Lock an open file until it is closed, without waiting.

    Args:
        handle: its descriptor.
        shared: others may hold shared locks at the same time.

    Returns:
        True if it is locked now, False if another process holds it, None where files cannot be locked: on some network
        file systems, and on Windows.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
    return True
