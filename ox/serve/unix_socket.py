"""A Unix domain socket as the address of a server: its file, and who may use it."""

from __future__ import annotations

import errno
import logging
import os
import socket
import stat
import sys

from ox.errors import ServeError

log = logging.getLogger("ox.serve")

MODE = 0o660  # the owner and the group: a proxy in front runs as another user
LONGEST = 107 if sys.platform == "linux" else 103  # bytes that an address has for the path
BACKLOG = 2048


class UnixSocket:
    """A listening socket at a path.

    The file of a server that is gone is replaced, that of one that listens is not.

    Args:
        path: where; relative to the working directory, or absolute.

    Raises:
        ServeError: it cannot be had.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        size = len(os.fsencode(path))
        if not hasattr(socket, "AF_UNIX"):
            raise _unavailable(path, "this system has no Unix domain sockets", "--port 8000")
        if size > LONGEST:
            what = "the path is too long for a Unix domain socket"
            raise ServeError(what, where=path, expected=f"at most {LONGEST} bytes", got=str(size), hint="/run/ox.sock")
        try:
            _remove_stale(path)
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                self.socket.bind(path)
                os.chmod(path, MODE)  # nobody can connect before it listens
                self._file = _identity(path)
                self.socket.listen(BACKLOG)
            except BaseException:
                self.socket.close()
                raise
        except (OSError, ValueError) as error:
            hint = "a folder that exists" if getattr(error, "errno", 0) == errno.ENOENT else None
            raise _unavailable(path, str(error), hint) from error

    def remove(self) -> None:
        """Takes the file away, unless another server has put its own there. Logs it where the system does not let us:
        the rest of the stop is more important, and the next server at this path replaces the file."""
        try:
            if _identity(self.path) == self._file:
                os.unlink(self.path)
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("the file of the Unix domain socket %s stays: %s", self.path, error)


def _remove_stale(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise _unavailable(path, "something else than a socket is there", "another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except FileNotFoundError:
            return
        except OSError as error:  # it may be there, and too busy, or somebody else's
            raise _unavailable(path, f"a socket is there already ({error})", "another path") from error
    raise _unavailable(path, "another server listens there", "another path")


def _identity(path: str) -> tuple[int, int]:
    status = os.lstat(path)
    return status.st_dev, status.st_ino


def _unavailable(path: str, why: str, hint: str | None) -> ServeError:
    return ServeError(f"cannot listen on the Unix domain socket {path}", got=why, hint=hint)
