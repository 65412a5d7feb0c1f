"""What a server process says beside its log, as lines of the log: one form, on one stream."""

from __future__ import annotations

import logging
import sys
import threading
from collections import deque
from types import TracebackType
from typing import Any, TextIO

from ox.errors import ArgumentError, OxError
from ox.serve.telemetry.logs import LEVEL_FILTER, LOGGER, WRITERS, FormedHandler, set_level

WARNING = "warning: "  # how lines for users begin that warn
REMEMBERED = 100  # of the last lines of the log; a server that runs for years writes without end


class LoggedOutput(FormedHandler):
    """From now on, whatever this process says through Python is a line in the form of the log, on standard error: what
    is shown to the user, records of all loggers (asyncio's, other packages'), warnings, and exceptions that nobody
    caught. The records of `ox.serve` go through the server's `Log` while there is one.

    Args:
        form: "json" or "text".
        level: the lowest level that is written.
        stream: where to; standard error without one.

    Raises:
        ArgumentError: there is no such form or level.
    """

    def __init__(self, form: str, level: str, stream: TextIO | None = None) -> None:
        super().__init__()
        if form not in WRITERS:
            raise ArgumentError("unknown form of the log", expected=" or ".join(WRITERS), got=form)
        self.form, self._stream = form, stream or sys.stderr
        self._logged: deque[str] = deque(maxlen=REMEMBERED)  # lines of the log, which are not shown a second time
        self._level = LOGGER.level
        set_level(level)
        LOGGER.addFilter(self._note)
        logging.getLogger().addHandler(self)
        logging.captureWarnings(True)
        self._before = sys.excepthook, sys.unraisablehook, threading.excepthook
        sys.excepthook = self._uncaught
        threading.excepthook = lambda it: self._uncaught(it.exc_type, it.exc_value, it.exc_traceback)
        sys.unraisablehook = lambda it: self._uncaught(it.exc_type, it.exc_value, it.exc_traceback)

    def close(self) -> None:
        """Gives everything back as it was."""
        LOGGER.setLevel(self._level)
        LEVEL_FILTER.levels = frozenset()
        LOGGER.removeFilter(self._note)
        logging.getLogger().removeHandler(self)
        logging.captureWarnings(False)
        sys.excepthook, sys.unraisablehook, threading.excepthook = self._before
        super().close()

    def show(self, line: str) -> None:
        """A line for the user, unless the log has it already: each line of the log stands for one that is shown."""
        if line in self._logged:
            self._logged.remove(line)
            return
        level = logging.WARNING if line.startswith(WARNING) else logging.INFO
        LOGGER.log(level, "%s", line.removeprefix(WARNING), extra={"shown": True})

    def fail(self, error: Exception) -> int:
        """The error that ends the process; returns its exit code."""
        if not isinstance(error, OxError):
            LOGGER.error("the server failed", exc_info=error)
            return 1
        LOGGER.error("%s", error.what, extra={"fields": error.fields()})
        return error.exit_code

    def emit(self, record: logging.LogRecord) -> None:
        write = WRITERS[self.form]
        try:
            line = write(record)
        except Exception:  # another package's arguments do not fit its message
            plain = logging.LogRecord(
                record.name, record.levelno, record.pathname, record.lineno, "%r", (record.msg,), None
            )
            line = write(plain)
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # a full disk, a reader that went away, a closed stream
            pass

    def _note(self, record: logging.LogRecord) -> bool:
        # not the lines of requests, and not those of `show`
        if record.levelno == logging.INFO and not hasattr(record, "fields") and not hasattr(record, "shown"):
            self._logged.append(record.getMessage())
        return True

    def _uncaught(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        LOGGER.error("an exception was not caught", exc_info=(kind, error, trace) if error is not None else None)
