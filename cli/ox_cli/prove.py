"""`ox prove`: checks the numbers of an ONNX file in a runtime."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ox.nn import Module


def prove(
    path: Annotated[Path, typer.Argument(help="An ONNX file.")],
    against: Annotated[
        str | None,
        typer.Option(
            help="A run's folder or name, or another ONNX file.",
            show_default="the golden samples in the file, or ox's own operators",
        ),
    ] = None,
    runtime: Annotated[str, typer.Option(help="onnxruntime, openvino, reference or ox.")] = "onnxruntime",
    inputs: Annotated[
        Path | None,
        typer.Option(help="Arrays by input name (.npz) to run with.", show_default="golden samples, or random numbers"),
    ] = None,
) -> None:
    """Run an ONNX file and compare its outputs. An output that is too far off is an error."""
    from ox.export import prove as compare

    other = None if against is None else against if against.endswith(".onnx") else _model_of(against)
    typer.echo(str(compare(path, other, runtime=runtime, inputs=inputs)))


def _model_of(run: str) -> Module:
    """The model of a run, as `ox export` writes it."""
    from ox import train
    from ox.train.recipe.export_inputs import to_export
    from ox_cli.export import SAMPLES, find_run

    recipe, trained = train.restore(find_run(Path(run)))
    model, _ = to_export(recipe, trained, SAMPLES)
    module: Module = model if recipe.base is None else model.exported()
    return module.eval()
