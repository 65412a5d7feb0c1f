"""Lines of the log: what they hold, and that nobody waits for them."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ox.errors import ArgumentError
from ox.serve.telemetry import logs
from ox.serve.telemetry.logs import LEVEL_FILTER, LOGGER, Log

Start = Callable[..., Log]


@pytest.fixture
def start() -> Iterator[Start]:
    """Begins logs that are closed at the end, where the test has not."""
    opened: list[Log] = []

    def begin(*arguments: Any) -> Log:
        opened.append(Log(*arguments))
        return opened[-1]

    yield begin
    for log in opened:
        if log in LOGGER.handlers:
            log.close()


def lines(stream: io.StringIO) -> list[Any]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_lines(start: Start) -> None:
    stream = io.StringIO()
    log = start("json", "info", stream)
    LOGGER.info("request", extra={"fields": {"status": 200, "target": 'a"\n\x1b[31m'}})
    LOGGER.warning("%d of %s", 3, "four")
    log.close()
    first, second = lines(stream)
    assert {**first, "time": ""} == {
        "time": "", "level": "info", "message": "request", "status": 200, "target": 'a"\n\x1b[31m',
    }  # fmt: skip
    assert first["time"].endswith("+00:00") and (second["level"], second["message"]) == ("warning", "3 of four")


def test_an_error_has_its_stack(start: Start) -> None:
    stream = io.StringIO()
    log = start("json", "info", stream)
    try:
        raise ZeroDivisionError("here")
    except ZeroDivisionError:
        LOGGER.exception("it failed")
    log.close()
    assert "ZeroDivisionError: here" in lines(stream)[0]["stack"] and "test_logs.py" in lines(stream)[0]["stack"]


def test_text_lines_cannot_be_broken_by_a_client(start: Start) -> None:
    stream = io.StringIO()
    log = start("text", "info", stream)
    LOGGER.info(
        "\x1b[2J gone",
        extra={"fields": {"target": "/a b\r\n2026 error", "status": 200, "empty": "", "id": "a=b", "c": "\\"}},
    )
    log.close()
    (line,) = stream.getvalue().splitlines()
    assert "\x1b" not in line and line.endswith(
        r'info    \x1b[2J gone target="/a b\r\n2026 error" status=200 empty="" id="a=b" c="\\"'
    )


def test_a_message_of_two_lines_stays_one_of_two(start: Start) -> None:
    stream = io.StringIO()
    log = start("text", "info", stream)
    LOGGER.info("model 'a' failed\n  expected  \x1b[2")
    log.close()
    first, second = stream.getvalue().splitlines()
    assert first.endswith("info    model 'a' failed") and second == r"  expected  \x1b[2"


def test_levels(start: Start) -> None:
    stream = io.StringIO()
    log = start("text", "warning", stream)
    LOGGER.info("unheard")
    logs.set_level("debug")
    LOGGER.debug("heard")
    logs.set_level("off")
    LOGGER.critical("unheard")
    with pytest.raises(ArgumentError, match="unknown log level"):
        logs.set_level("loud")
    log.close()
    assert "unheard" not in stream.getvalue() and "heard" in stream.getvalue()


def test_the_logger_is_left_as_it_was(start: Start) -> None:
    before = LOGGER.level, LOGGER.propagate, list(LOGGER.handlers)
    log = start("text", "debug", io.StringIO())
    assert not LOGGER.propagate
    log.close()
    assert (LOGGER.level, LOGGER.propagate, list(LOGGER.handlers)) == before
    LOGGER.debug("nobody minds")


def test_muted_levels_end_with_the_servers_they_were_set_for(start: Start) -> None:
    """A client may mute levels of a server without a log; the next server's log is whole."""
    LOGGER.addFilter(LEVEL_FILTER)
    LEVEL_FILTER.levels = frozenset({logging.INFO})
    log = start("text", "info", stream := io.StringIO())
    LOGGER.info("heard")
    LEVEL_FILTER.levels = frozenset({logging.INFO})
    LOGGER.info("muted")
    log.close()
    assert stream.getvalue().count("heard") == 1 and "muted" not in stream.getvalue()
    assert not LEVEL_FILTER.levels


class Slow(io.StringIO):
    """A reader that takes nothing until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.go, self.asked = threading.Event(), threading.Event()

    def write(self, text: str) -> int:
        self.asked.set()
        self.go.wait(120)
        return super().write(text)


def test_the_first_log_that_closes_leaves_the_others_theirs(start: Start) -> None:
    """Two servers of one process."""
    LOGGER.setLevel(logging.ERROR)
    try:
        first, stream = start("json", "info", io.StringIO()), io.StringIO()
        second = start("json", "info", stream)
        first.close()
        LOGGER.info("still here")
        second.close()
        assert [line["message"] for line in lines(stream)] == ["still here"]
        assert (LOGGER.level, LOGGER.propagate) == (logging.ERROR, True)
        second.close()  # as logging does at the end of the process
        assert LOGGER.level == logging.ERROR
    finally:
        LOGGER.setLevel(logging.NOTSET)


def test_a_reader_that_is_too_slow_holds_up_nobody(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_WAITING", 5)
    stream = Slow()
    log = start("text", "info", stream)
    LOGGER.info("the first")
    assert stream.asked.wait(120)
    for number in range(20):
        LOGGER.info("line %d", number)
    assert log.dropped == 15
    stream.go.set()
    log.close()
    assert stream.getvalue().count("line") == 5


def test_a_full_disk_is_counted_and_survived(start: Start) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    log = start("text", "info", Full())
    LOGGER.info("one")
    log.close()
    assert log.dropped == 1


def test_nothing_but_fields_reaches_a_record(start: Start) -> None:
    record = logging.LogRecord("ox.serve", logging.INFO, "", 0, "hello", (), None)
    assert set(logs.fields_of(record)) == {"time", "level", "message"}
