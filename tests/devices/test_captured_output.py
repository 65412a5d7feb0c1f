"""Output of C and of Python that is kept from the terminal, and the streams afterwards."""

from __future__ import annotations

import os
import sys

import pytest

from ox.devices.captured_output import captured_output


def test_both_streams_and_both_languages(capfd: pytest.CaptureFixture[str]) -> None:
    with captured_output() as lines:
        print("python")
        os.write(1, b"one\n")
        os.write(2, b"two\n")
        assert lines == []
    assert sorted(lines) == ["one", "python", "two"]
    assert capfd.readouterr() == ("", "")
    os.write(1, b"out\n")
    os.write(2, b"err\n")
    assert capfd.readouterr() == ("out\n", "err\n")


def test_after_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), captured_output() as lines:
        os.write(2, b"before\n")
        raise ZeroDivisionError
    assert lines == ["before"]
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "after\n"


def test_what_python_had_not_written_yet(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    with open(1, "w", closefd=False) as stdout:
        monkeypatch.setattr(sys, "__stdout__", stdout)
        stdout.write("before")
        with captured_output() as lines:
            stdout.flush()
            os.write(1, b"inside")
    assert lines == ["inside"] and capfd.readouterr().out == "before"
