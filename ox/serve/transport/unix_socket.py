"""A Unix domain socket as the server's address: its file and permissions."""

from __future__ import annotations

import errno
import logging
import os
import socket
import stat
import sys

from ox.errors import ServeError

log = logging.getLogger("ox.serve")

MODE = 0o660  # owner and group: a reverse proxy runs as another user
MAX_PATH_BYTES = 107 if sys.platform == "linux" else 103  # size of sun_path without its final zero
BACKLOG = 2048


class UnixSocket:
    """A listening socket at a path.

    Replaces the file of a server that has exited, but not of one that still listens.

    Args:
        path: absolute, or relative to the working directory.

    Raises:
        ServeError: the server cannot listen on it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        size = len(os.fsencode(path))
        if not hasattr(socket, "AF_UNIX"):
            raise _bind_error(path, "this system has no Unix domain sockets", "--port 8000")
        if size > MAX_PATH_BYTES:
            what = "the path is too long for a Unix domain socket"
            raise ServeError(
                what, where=path, expected=f"at most {MAX_PATH_BYTES} bytes", got=str(size), hint="/run/ox.sock"
            )
        try:
            _remove_stale(path)
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                self.socket.bind(path)
                os.chmod(path, MODE)  # before listen(), so that no client can connect earlier
                self._file = _identity(path)
                self.socket.listen(BACKLOG)
            except BaseException:
                self.socket.close()
                raise
        except (OSError, ValueError) as error:
            hint = "a folder that exists" if getattr(error, "errno", 0) == errno.ENOENT else None
            raise _bind_error(path, str(error), hint) from error

    def remove(self) -> None:
        """Removes the file, unless another server has replaced it. A failure is only logged: the shutdown goes on, and
        the next server at this path replaces the file."""
        try:
            if _identity(self.path) == self._file:
                os.unlink(self.path)
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("cannot remove the file of the Unix domain socket %s: %s", self.path, error)


def _remove_stale(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise _bind_error(path, "the path exists and is not a socket", "another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except FileNotFoundError:
            return
        except OSError as error:  # a server that is too busy, or a file of another user
            raise _bind_error(path, f"the socket exists already ({error})", "another path") from error
    raise _bind_error(path, "another server listens there", "another path")


def _identity(path: str) -> tuple[int, int]:
    status = os.lstat(path)
    return status.st_dev, status.st_ino


def _bind_error(path: str, reason: str, hint: str | None) -> ServeError:
    return ServeError(f"cannot listen on the Unix domain socket {path}", got=reason, hint=hint)
