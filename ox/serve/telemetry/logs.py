"""Logs: a line each, as JSON or as text, on standard error.

A separate thread writes them: a slow reader or a full disk does not delay requests. What
cannot be taken is counted and left out.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import Any, ClassVar, TextIO

import orjson

from ox.errors import ArgumentError

LOGGER = logging.getLogger("ox.serve")
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "off": 60}
FORMS = ("json", "text")
MOST_WAITING = 10_000  # lines


def set_level(name: str) -> None:
    """Sets the lowest level that is written.

    Raises:
        ArgumentError: there is no such level.
    """
    if name not in LEVELS:
        raise ArgumentError("unknown log level", expected=", ".join(LEVELS), got=name)
    LOGGER.setLevel(LEVELS[name])


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """A record's parts; what it was given as `extra={"fields": {...}}` among them."""
    entry: dict[str, Any] = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "message": record.getMessage(),
        **({} if record.name.startswith(LOGGER.name) else {"logger": record.name}),
        **getattr(record, "fields", {}),
    }
    if record.exc_info and record.exc_info[1] is not None:
        entry["stack"] = "".join(traceback.format_exception(record.exc_info[1]))
    return entry


def json(record: logging.LogRecord) -> str:
    """One JSON object."""
    return orjson.dumps(fields_of(record), default=str).decode()


def text(record: logging.LogRecord) -> str:
    """Time, level, message, then name=value; the stack of an error below. What a client sent breaks no line."""
    entry = fields_of(record)
    stack = entry.pop("stack", "")
    head = f"{entry.pop('time')} {entry.pop('level'):<7} {_plain(entry.pop('message'))}"
    line = " ".join([head, *(f"{name}={_quoted(value)}" for name, value in entry.items())])
    return f"{line}\n{stack.rstrip()}" if stack else line


def _plain(message: str) -> str:
    return "".join(letter if letter.isprintable() or letter == "\n" else repr(letter)[1:-1] for letter in message)


def _quoted(value: Any) -> str:
    word = str(value)
    return word if word and word.isprintable() and not set(word) & set(' "=\\') else orjson.dumps(word).decode()


WRITERS = {"json": json, "text": text}  # by the form of a log


class LevelFilter(logging.Filter):
    """Drops records of some levels."""

    levels: frozenset[int] = frozenset()

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno not in self.levels


LEVEL_FILTER = LevelFilter()  # one per process, like the logger


class FormedHandler(logging.Handler):
    """Writes lines in a form, which log settings change at run time."""

    form: str


class Log(FormedHandler):
    """The server's log, written by a separate thread until `close`. Several servers of a process share the logger: the
    last one that closes its log gives the logger back as the first one found it. Where the process has a handler of its
    own (`LoggedOutput`), the level stays for that.

    Args:
        form: "json" or "text".
        name: the lowest level that is written.
        stream: where to; standard error without one.
    """

    _open: ClassVar[list[Log]] = []
    _before: ClassVar[tuple[int, bool]]  # the logger's level and whether it propagates, without any of these

    def __init__(self, form: str = "text", name: str = "info", stream: TextIO | None = None) -> None:
        super().__init__()
        self.dropped = 0  # lines that were dropped
        self.form, self._stream = form, stream or sys.stderr
        self._waiting: SimpleQueue[logging.LogRecord | None] = SimpleQueue()
        if not Log._open:
            Log._before = LOGGER.level, LOGGER.propagate
            LEVEL_FILTER.levels = frozenset()  # what a server without a log was told to mute
        Log._open.append(self)
        set_level(name)
        LOGGER.propagate = False
        LOGGER.addHandler(self)
        self._thread = threading.Thread(target=self._write, name="ox-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        if self._waiting.qsize() >= MOST_WAITING:
            self.dropped += 1
        else:
            self._waiting.put(record)

    def close(self) -> None:
        """Writes what waits, for two seconds at most, and gives the logger back as it was."""
        LOGGER.removeHandler(self)
        if self in Log._open:
            Log._open.remove(self)
            if not Log._open:
                level, LOGGER.propagate = Log._before
                if not any(isinstance(handler, FormedHandler) for handler in logging.getLogger().handlers):
                    LOGGER.setLevel(level)
                    LEVEL_FILTER.levels = frozenset()
        self._waiting.put(None)
        self._thread.join(2.0)
        self._detach_stderr()
        super().close()

    def _detach_stderr(self) -> None:
        """Python exits with code 120 if standard error cannot be flushed."""
        try:
            self._stream.flush()
        except (OSError, ValueError):
            if self._stream is sys.stderr:
                sys.stderr = open(os.devnull, "w")  # noqa: SIM115

    def _write(self) -> None:
        while True:
            batch = [self._waiting.get()]
            try:
                while len(batch) < 1000:  # as many as there are: one call of the system for all of them
                    batch.append(self._waiting.get_nowait())
            except Empty:
                pass
            write = WRITERS[self.form]
            lines = [write(record) + "\n" for record in batch if record is not None]
            try:
                self._stream.write("".join(lines))
                self._stream.flush()
            except (OSError, ValueError):  # a full disk, a reader that went away, a closed stream
                self.dropped += len(lines)
            if None in batch:
                return
