"""What a process says beside its log, in the log's form."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from ox.errors import ArgumentError, LoadError
from ox.serve.protocol.v2.logs import LogSettings
from ox.serve.telemetry.logged_output import REMEMBERED, LoggedOutput
from ox.serve.telemetry.logs import LOGGER, Log


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def output(stream: io.StringIO) -> Iterator[LoggedOutput]:
    level = LOGGER.level
    opened = LoggedOutput("json", "info", stream)
    yield opened
    opened.close()
    assert LOGGER.level == level


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """What was written: each line an object."""
    return [{**json.loads(line), "time": ""} for line in stream.getvalue().splitlines()]


def line(level: str, message: str, **fields: Any) -> dict[str, Any]:
    return {"time": "", "level": level, "message": message, **fields}


def test_lines_for_the_user_and_records_of_others(output: LoggedOutput, stream: io.StringIO) -> None:
    output.show("ready")
    output.show("warning: everybody may manage this server")
    logging.getLogger("asyncio").error("Task %s\nnever awaited", "a")
    output.handle(logging.LogRecord("other", logging.WARNING, "", 0, "%d", ("no number",), None))
    assert lines(stream) == [
        line("info", "ready"),
        line("warning", "everybody may manage this server"),
        line("error", "Task a\nnever awaited", logger="asyncio"),
        line("warning", "'%d'", logger="other"),
    ]


def test_a_line_is_not_said_twice(output: LoggedOutput, stream: io.StringIO) -> None:
    """The server's log has its own writer while it is open."""
    log = Log("json", "info", stream)
    LOGGER.info("model %s", "a")
    output.show("model a")
    output.show("ready")
    log.close()
    output.show("stopped")
    assert [entry["message"] for entry in lines(stream)] == ["model a", "ready", "stopped"]


def test_settings_of_the_log_are_those_of_all_lines(output: LoggedOutput, stream: io.StringIO) -> None:
    """Also after the server has closed its log."""
    log, settings = Log("json", "info", stream), LogSettings()
    settings.update({"log_format": "text", "log_info": False})
    for show in (output.show, lambda line: (log.close(), output.show(line))):
        show("draining")
        show("warning: worker 1 ended")
    assert [each.split(maxsplit=1)[1] for each in stream.getvalue().splitlines()] == ["warning worker 1 ended"] * 2


def test_what_happens_again_is_said_again(output: LoggedOutput, stream: io.StringIO) -> None:
    """Such as the death of a worker."""
    LOGGER.info("worker 1 ended")
    for _ in range(3):
        output.show("worker 1 ended")
    assert [entry["message"] for entry in lines(stream)] == ["worker 1 ended"] * 3


def test_only_the_last_lines_are_remembered(output: LoggedOutput, stream: io.StringIO) -> None:
    for index in range(REMEMBERED + 1):
        LOGGER.info("%d", index)
    for index in (REMEMBERED, 1, 0):
        output.show(str(index))
    assert [entry["message"] for entry in lines(stream)] == [*map(str, range(REMEMBERED + 1)), "0"]


def test_warnings_and_exceptions_that_nobody_caught(output: LoggedOutput, stream: io.StringIO) -> None:
    def fail() -> None:
        raise ZeroDivisionError("here")

    class Stubborn:
        def __del__(self) -> None:
            fail()

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("an old name", FutureWarning, stacklevel=1)
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    Stubborn()
    try:
        fail()
    except ZeroDivisionError as error:
        sys.excepthook(type(error), error, error.__traceback__)
    warned, *uncaught = lines(stream)
    assert warned["logger"] == "py.warnings" and "FutureWarning: an old name" in warned["message"]
    assert [entry["message"] for entry in uncaught] == ["an exception was not caught"] * 3
    assert all("ZeroDivisionError: here" in entry["stack"] for entry in uncaught)


def test_the_error_that_ends_the_process(output: LoggedOutput, stream: io.StringIO) -> None:
    assert output.fail(LoadError("no file", where="here", hint="another name")) == LoadError.exit_code
    assert output.fail(KeyError("x")) == 1
    first, second = lines(stream)
    assert first == line("error", "no file", **{"in": "here", "try": "another name"})
    assert second["message"] == "the server failed" and "KeyError: 'x'" in second["stack"]


def test_a_stream_that_takes_nothing_is_no_failure(output: LoggedOutput, stream: io.StringIO) -> None:
    stream.close()
    output.show("ready")


def test_everything_is_given_back() -> None:
    before = sys.excepthook, threading.excepthook, sys.unraisablehook, list(logging.getLogger().handlers)
    level = LOGGER.level
    LoggedOutput("text", "warning", io.StringIO()).close()
    LOGGER.setLevel(level)
    after = sys.excepthook, threading.excepthook, sys.unraisablehook, list(logging.getLogger().handlers)
    assert after == before
    with pytest.raises(ArgumentError, match="json or text"):
        LoggedOutput("xml", "info")
