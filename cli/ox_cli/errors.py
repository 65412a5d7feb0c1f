"""Prints errors to stderr in the format of `OxError`; in colour if stderr is a terminal."""

from __future__ import annotations

import sys
import sysconfig
import traceback
from pathlib import Path

import typer

from ox.errors import OxError


class UsageError(OxError, ValueError):
    """A command line with missing or conflicting arguments."""

    exit_code = 2


class UnexpectedError(OxError, RuntimeError):
    """An exception other than `OxError`: most likely a bug in ox."""


def report(error: Exception) -> int:
    """Prints `error` to stderr and returns its exit code."""
    shown = to_ox_error(error)
    if shown is None:
        return int(getattr(error, "exit_code", 1))
    _print(shown)
    return shown.exit_code


def report_exit(stop: SystemExit) -> int:
    """Prints which line called sys.exit and with which value; returns the exit code."""
    shown = str(stop.code) if isinstance(stop.code, int) else ""
    if stop.code is not None and not shown:
        print(stop.code, file=sys.stderr)
    if place := _user_line(stop):
        print(f"ended by sys.exit({shown}) in {place}", file=sys.stderr)
    sys.stderr.flush()
    return stop.code if isinstance(stop.code, int) else int(stop.code is not None)


def to_ox_error(error: Exception) -> OxError | None:
    """Converts `error` to an `OxError`; None if there is nothing to print."""
    if isinstance(error, OxError):
        return error
    if isinstance(error, typer.Abort):  # a prompt that got the end of input
        return None
    # Typer's usage errors have no public base class in all its versions, but all of them have these two names.
    message, code = getattr(error, "format_message", None), getattr(error, "exit_code", None)
    if callable(message) and isinstance(code, int):
        path = getattr(getattr(error, "ctx", None), "command_path", "ox")
        text = str(message()).strip()  # empty for `ox` alone: its help is already printed
        return UsageError(text, hint=f"{path} --help") if text else None
    return UnexpectedError(
        f"{type(error).__name__}: {error}" if str(error) else type(error).__name__,
        where=_place(error),
        hint="OX_TRACEBACK=1 in the environment shows the whole traceback",
    )


def _place(error: BaseException) -> str | None:
    """The innermost frame in a file; frames such as `<frozen importlib._bootstrap>` are skipped."""
    lines = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    files = [f"{name}:{line}" for name, line in lines if not name.startswith("<")]
    return files[-1] if files else None


def _user_line(error: BaseException) -> str | None:
    """The innermost frame in the user's code: neither in a library nor in ox."""
    import ox

    libraries = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    libraries |= {str(Path(__file__).parent), str(Path(ox.__file__).parent)}
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        name = frame.f_code.co_filename
        installed = {"site-packages", "dist-packages"} & set(Path(name).parts)
        if not name.startswith("<") and not installed and not any(name.startswith(f"{each}/") for each in libraries):
            return f"{name}:{line}"
    return None


def _print(error: OxError) -> None:
    from rich.console import Console
    from rich.text import Text

    from ox.distributed.environment import is_rank, launch

    name = type(error).__name__
    if is_rank():
        name = f"rank {launch().rank}: {name}"
    Console(stderr=True, highlight=False).print(
        Text.assemble((f"{name}:", "bold red"), " ", str(error)), soft_wrap=True, emoji=False
    )
    sys.stderr.flush()
