"""The `ox` command.

`ox --help` must start fast, so this module imports nothing heavy: not `ox`, not NumPy. A command is a line in
`COMMANDS` and a file beside this one. Module `ox_cli.<module>` holds a function of the same name. Its parameters have
Typer's annotations:

    # cli/ox_cli/train.py
    def train(recipe: Annotated[str, typer.Argument(help="a name, or the path of a recipe file")], ...) -> None: ...

A command with subcommands holds a Typer `app` instead. The module is imported when its command runs or shows its help.
The function raises `OxError` for errors that the user can fix and `typer.Exit(code)` to set an exit code other than 0.
Otherwise it returns None.

Exit codes: 0 success, 1 an error (or `OxError.exit_code`), 2 wrong usage, 130 Ctrl-C.
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
    "train": ("train", "Train a model from a recipe: a built-in name such as digits, or a recipe file."),
    "launch": ("launch", "Run a training script on several processes (distributed training)."),
    "sweep": ("sweep", "Train a recipe with different options, and find the best (hyperparameter search)."),
    "runs": ("runs", "List, compare and plot training runs, or write an HTML report."),
    "eval": ("evaluate", "Evaluate a run or an ONNX file on the test set."),
    "predict": ("predict", "Run a model, from a run or an ONNX file, on your own input."),
    "export": ("export", "Export a run's model to a verified ONNX file."),
    "quantize": ("quantize", "Write an ONNX file in lower precision, and compare it with float32."),
    "inspect": ("inspect", "Show the inputs, outputs and contents of an ONNX file."),
    "convert": ("convert", "Write an ONNX file for another opset, with fixed sizes, or without documentation."),
    "diff": ("diff", "Compare two ONNX files: interface, operators, weights and numbers."),
    "prove": ("prove", "Check the numbers of an ONNX file in a runtime, against a run, a file or its golden samples."),
    "serve": ("serve", "Serve ONNX files over HTTP and gRPC (Open Inference Protocol V2)."),
    "chat": ("chat", "Talk with a model that makes texts, from a folder or on a server."),
    "keys": ("keys", "Create, list and revoke API keys for `ox serve`."),
    "tune": ("tune", "Find the fastest serving settings for a model on this machine."),
    "bench": ("bench", "Load-test a V2 server over HTTP or gRPC."),
    "port": ("port", "Convert the imports of PyTorch scripts and list what ox does not support."),
    "doctor": ("doctor", "Check this machine: CPU threads, ONNX Runtime, GPU and MPI."),
}


class LazyGroup(TyperGroup):
    """Lists all commands from the table and imports only the one that runs."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and load(name or ""), rest


def load(name: str) -> Any:
    """Imports a command's module and builds its parser."""
    module, summary = COMMANDS[name]
    imported = importlib.import_module(f"ox_cli.{module}")
    if hasattr(imported, "app"):  # a command with subcommands
        return typer.main.get_command(imported.app)
    function = getattr(imported, module)
    single = typer.Typer(add_completion=False)
    # A function without a docstring shows the line of the table as its help.
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


def _replace_unencodable() -> None:
    """Print "?" for characters that the terminal's encoding lacks, instead of failing."""
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
    """Train models, export them to verified ONNX files, and serve these files."""


def _stub() -> None:
    """Placeholder in the list of commands; `load` replaces it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns the exit code. Errors are printed to stderr in the format of `OxError`."""
    _replace_unencodable()
    code = _run(argv)
    if abandoned := sys.modules.get(
        "ox.serve.runtime.abandoned_threads"
    ):  # only `ox serve` can have threads that cannot be stopped
        abandoned.leave(code)
    return code


def _run(argv: Sequence[str] | None) -> int:
    command = typer.main.get_command(application())
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = command.main(args=arguments, prog_name="ox", standalone_mode=False)
    except KeyboardInterrupt:
        return 130
    except SystemExit as stop:  # raised by the user's recipe file or script: keep its code and its message
        from ox_cli.errors import report_exit

        return report_exit(stop)
    except Exception as error:
        if os.environ.get("OX_TRACEBACK"):
            raise
        from ox_cli.errors import report

        return report(error)
    return code if isinstance(code, int) else 0
