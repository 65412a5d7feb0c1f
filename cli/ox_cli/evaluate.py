"""`ox eval`: how often a model is right on what was held back, and what else its recipe asks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

BATCH = 64  # a file may need much memory for a sample
OWN = ("correct", "count", "accuracy")  # said in words


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
    from ox.errors import ArgumentError
    from ox.train.evaluate import right_answers, value_of
    from ox.train.metrics.named import metrics_of
    from ox.train.samples import batches
    from ox.train.show import percent
    from ox_cli.model_source import open_source

    source = open_source(model, recipe)
    page = source.needed_recipe()
    parts = page.data().parts()
    part = list(parts)[-1]
    metrics = metrics_of(page.optional("metrics"))
    correct: int | None = 0
    count = 0
    for inputs, targets in batches(parts[part], BATCH, page.function("collate"), source.order):
        outputs = source.run(inputs)
        if targets is None:
            raise ArgumentError(f"the samples of {page.name} have no target to be right about")
        right = right_answers(outputs, targets)
        correct, count = None if right is None or correct is None else correct + right, count + targets.size
        for metric in metrics:
            metric.update(outputs, targets)
    if correct is None and not metrics:
        raise ArgumentError(
            f"{page.name} has no classes to be right about",
            hint=f"metrics = ['mae'] on its page; ox train shows its loss on {part} data",
        )
    found = {} if correct is None else {"correct": correct, "count": count, "accuracy": correct / count}
    found |= {metric.name: value_of(metric) for metric in metrics}
    if as_json:
        typer.echo(json.dumps({"model": source.name, "recipe": page.name, "part": part, **found}))
        return
    shown = [] if correct is None else [f"{correct} of {count} right, {percent(correct / count)}"]
    shown += [f"{name} {value:.4g}" for name, value in found.items() if name not in OWN and isinstance(value, float)]
    typer.echo(f"{source.name} · {page.name}, {part}: {', '.join(shown)}")
