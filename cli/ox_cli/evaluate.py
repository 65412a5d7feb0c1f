"""`ox eval`: how often a model is right on what was held back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

BATCH = 64  # a file may need much memory for a sample


def evaluate(
    model: Annotated[
        Path | None,
        typer.Argument(help="A run's folder or an ONNX file; the newest run by default.", show_default=False),
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Whose data to measure on.", show_default="what trained the model")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure a run or an ONNX file on held-back data."""
    from ox.train.evaluate import right_answers
    from ox.train.samples import batches
    from ox.train.show import percent
    from ox_cli.model_source import open_source

    source = open_source(model, recipe)
    page = source.needed_recipe()
    parts = page.data().parts()
    part = "held back" if "held back" in parts else "validation"
    correct = count = 0
    for *inputs, targets in batches(parts[part], BATCH):
        right = right_answers(source.run(inputs), targets)
        if right is None:
            from ox.errors import ArgumentError

            raise ArgumentError(
                f"{page.name} has no classes to be right about", hint=f"ox train shows its loss on {part} data"
            )
        correct, count = correct + right, count + targets.size
    if as_json:
        shown = {"model": source.name, "recipe": page.name, "part": part}
        typer.echo(json.dumps({**shown, "correct": correct, "count": count, "accuracy": correct / count}))
    else:
        typer.echo(f"{source.name} · {page.name}, {part}: {correct} of {count} right, {percent(correct / count)}")
