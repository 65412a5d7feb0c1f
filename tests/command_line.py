"""Commands as they are typed, in this process."""

from __future__ import annotations

from ox_cli.main import main


def run_main(*arguments: object) -> int:
    """The exit code of `ox` with these arguments."""
    return main([str(argument) for argument in arguments])
