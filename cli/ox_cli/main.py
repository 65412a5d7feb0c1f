"""The `ox` command.

`ox --help` must feel instant, so nothing heavy is imported here: not `ox`, not NumPy. A command is a line in `COMMANDS`
and a file beside this one. Module `ox_cli.<module>` holds a plain function of the same name whose parameters carry
Typer's annotations:

    # cli/ox_cli/train.py
    def train(recipe: Annotated[str, typer.Argument(help="a name, or a page of your own")], ...) -> None: ...

A command that has commands of its own holds a Typer `app` instead. The module is imported when its command runs or
shows its help. The function raises `OxError` for everything that the user can mend, `typer.Exit(code)` to end with
another code than 0, and otherwise returns None.

Exit codes: 0 done, 1 an error (or `OxError.exit_code`), 2 wrong usage, 130 Ctrl-C.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

# command -> (module and function, one line of help)
COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("train", "Train a recipe: a name such as digits, or the path to a page of your own."),
    "launch": ("launch", "Run a page on several processes that train together."),
    "runs": ("runs", "List runs, compare and plot them, or write the report of one."),
    "eval": ("evaluate", "Measure a run or an ONNX file on held-back data."),
    "predict": ("predict", "Run a model, from a run or an ONNX file, on an input of yours."),
    "export": ("export", "Write a run's model as an ONNX file that has proven itself."),
    "inspect": ("inspect", "Show what an ONNX file takes, gives and contains."),
    "serve": ("serve", "Serve an ONNX file over HTTP (Open Inference Protocol V2)."),
    "keys": ("keys", "Make, list and revoke API keys of `ox serve`."),
    "tune": ("tune", "Measure how a model is best served on this machine."),
    "bench": ("bench", "Load a V2 server, over HTTP or gRPC, and say how it took it."),
    "port": ("port", "Rewrite the imports of PyTorch scripts, and list what has no counterpart."),
    "doctor": ("doctor", "Say what this machine really has: threads, runtimes, devices."),
}


class LazyGroup(TyperGroup):
    """Lists every command from the table, and imports only the one that was asked for."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and load(name or ""), rest


def load(name: str) -> Any:
    """Imports a command's module and builds its parser; asks no more than the table says."""
    module, summary = COMMANDS[name]
    page = importlib.import_module(f"ox_cli.{module}")
    if hasattr(page, "app"):  # a command with commands of its own
        return typer.main.get_command(page.app)
    function = getattr(page, module)
    single = typer.Typer(add_completion=False)
    # A function without a docstring of its own gets the table's line as its help.
    single.command(name, help=None if function.__doc__ else summary)(function)
    return typer.main.get_command(single)


def application() -> typer.Typer:
    app = typer.Typer(
        name="ox", cls=LazyGroup, no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]}
    )
    app.callback()(common)
    for name, (_, summary) in COMMANDS.items():
        app.command(name, help=summary)(_stub)
    return app


def _any_encoding() -> None:
    """What a terminal cannot show becomes "?": a locale without UTF-8 is no reason to fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")


def _version(wanted: bool) -> None:
    if wanted:
        from ox import __version__

        typer.echo(f"ox {__version__}")
        raise typer.Exit


VERSION = typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_version)


def common(version: Annotated[bool, VERSION] = False) -> None:
    """Train eagerly, export a standard ONNX file that proves itself, serve it."""


def _stub() -> None:
    """Stands in the list of commands until `load` replaces it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns the exit code; what goes wrong is said on stderr in the one format."""
    _any_encoding()
    code = _run(argv)
    if abandoned := sys.modules.get("ox.serve.abandoned"):  # no other command has threads that nobody can end
        abandoned.leave(code)
    return code


def _run(argv: Sequence[str] | None) -> int:
    command = typer.main.get_command(application())
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = command.main(args=arguments, prog_name="ox", standalone_mode=False)
    except KeyboardInterrupt:
        return 130
    except SystemExit as stop:  # of a page: its code and its message are the user's own
        from ox_cli.errors import report_exit

        return report_exit(stop)
    except Exception as error:
        if os.environ.get("OX_TRACEBACK"):
            raise
        from ox_cli.errors import report

        return report(error)
    return code if isinstance(code, int) else 0
