"""`ox convert`: writes an ONNX file for another opset or runtime, with fixed sizes, or without documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ox_cli.export import Optimize, Target
from ox_cli.file_size import size


def convert(
    path: Annotated[Path, typer.Argument(help="An ONNX file.")],
    to: Annotated[Path | None, typer.Argument(help="The file to write.", show_default="the same file")] = None,
    opset: Annotated[
        int | None, typer.Option(help="ONNX opset, 13 to 26.", show_default="the lowest that works, at least 21")
    ] = None,
    fix: Annotated[
        list[str] | None, typer.Option(help="A size that is fixed: batch=1. May be repeated.", show_default=False)
    ] = None,
    strip: Annotated[
        bool, typer.Option("--strip", help="Leave out documentation, metadata and golden samples.")
    ] = False,
    optimize: Annotated[
        Optimize | None, typer.Option(help="inference: shorter and faster.", show_default="the graph as it is")
    ] = None,
    target: Annotated[
        Target | None, typer.Option(help="A runtime that lacks some operators.", show_default="none")
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(help="Arrays by input name (.npz) that both files run with.", show_default="random numbers"),
    ] = None,
) -> None:
    """Write an ONNX file anew, compared with the old one in ONNX Runtime before and after."""
    from ox.export import convert as write
    from ox_cli.errors import UsageError

    fixed = {}
    for each in fix or []:
        name, _, number = each.rpartition("=")
        if not name or not number.isdecimal():
            raise UsageError(f"--fix {each} is no size", expected="NAME=NUMBER, for example --fix batch=1")
        fixed[name] = int(number)
    report, proof = write(
        path, to or path, opset=opset, fix=fixed, strip=strip, optimize=optimize, target=target, inputs=inputs
    )
    typer.echo(f"{report.path}  {size(report.path.stat().st_size)} · opset {report.opset} · {report.nodes} nodes")
    for line in [report.dims, *report.limits]:
        typer.echo(line)
    typer.echo(str(proof))
