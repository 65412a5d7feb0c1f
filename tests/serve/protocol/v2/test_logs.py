"""Settings that really change what is written."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from ox.errors import ServeError
from ox.serve.protocol.v2.logs import LogSettings, typed_parameters
from ox.serve.telemetry.logs import LOGGER, Log

START = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "text",
}


class Written:
    """Settings of a log, and what is written to it."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.log = Log("text", "info", self.stream)
        self.settings = LogSettings()

    def lines(self) -> list[str]:
        """What is written of a line of each level."""
        for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
            LOGGER.log(level, logging.getLevelName(level))
        self.log.close()
        return self.stream.getvalue().splitlines()


@pytest.fixture
def written() -> Iterator[Written]:
    made = Written()
    assert made.settings.settings() == START
    yield made
    made.log.close()
    LogSettings()  # mutes nothing


@pytest.mark.parametrize(
    ("changes", "levels"),
    [({}, "INFO WARNING ERROR"), ({"log_info": False}, "WARNING ERROR"), ({"log_warning": False}, "INFO ERROR"),
     ({"log_error": False, "log_info": False}, "WARNING"), ({"log_verbose_level": 2}, "DEBUG INFO WARNING ERROR"),
     ({"log_verbose_level": 1, "log_info": False}, "DEBUG WARNING ERROR"),
     ({"log_info": None, "log_file": None, "log_error": False}, "INFO WARNING"),
     ({"log_info": False, "log_warning": False, "log_error": False}, "")],
)  # fmt: skip
def test_levels(written: Written, changes: Any, levels: str) -> None:
    written.settings.update(changes)
    assert written.settings.settings() == START | {name: value for name, value in changes.items() if value is not None}
    assert [line.split()[2] for line in written.lines()] == levels.split()


def test_form(written: Written) -> None:
    written.settings.update({"log_format": "json"})
    assert [json.loads(line)["message"] for line in written.lines()] == ["INFO", "WARNING", "ERROR"]


def test_there_and_back(written: Written) -> None:
    settings = written.settings
    settings.update({"log_info": False, "log_verbose_level": 7, "log_format": "json"})
    assert settings.settings()["log_verbose_level"] == 7
    settings.update({"log_format": "ISO8601"})
    assert settings.settings()["log_format"] == "text"
    settings.update(START)
    assert settings.settings() == START


@pytest.mark.parametrize(
    ("name", "value"),
    [("log_info", 1), ("log_error", "no"), ("log_verbose_level", -1), ("log_verbose_level", True),
     ("log_format", "xml"), ("log_format", 5), ("log_format", ["text"]), ("log_file", "/etc/passwd"),
     ("log_poem", True)],
)  # fmt: skip
def test_wrong_settings(written: Written, name: str, value: Any) -> None:
    with pytest.raises(ServeError, match=name) as caught:
        written.settings.update({"log_info": False, name: value})
    assert caught.value.status == 400
    assert written.settings.settings() == START  # nothing of it was done


def test_without_a_log_of_ours() -> None:
    before = LOGGER.level
    settings = LogSettings()
    assert settings.settings()["log_format"] == "default"
    settings.update({"log_format": "default", "log_info": True, "log_warning": False})
    assert LOGGER.isEnabledFor(logging.INFO) and not settings.settings()["log_warning"]
    LOGGER.setLevel(before)
    assert LogSettings().settings()["log_warning"]  # the next server's log is whole


def test_typed() -> None:
    assert typed_parameters({"a": True, "b": 1, "c": "x"}) == {
        "a": {"bool_param": True},
        "b": {"uint32_param": 1},
        "c": {"string_param": "x"},
    }
