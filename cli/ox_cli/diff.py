"""`ox diff`: compares two ONNX files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def diff(
    a: Annotated[Path, typer.Argument(help="An ONNX file.")],
    b: Annotated[Path, typer.Argument(help="Another one.")],
) -> None:
    """Compare two ONNX files: interface, operators, weights and numbers. The exit code is 1 if they differ."""
    from ox.export import diff as compare

    found = compare(a, b)
    typer.echo(str(found) or "no difference")
    if not found.same:
        raise typer.Exit(1)
