"""`ox eval`: the loss of what was held back, how often a model is right on it, and what else its recipe asks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ox.train import Recipe
    from ox.train.evaluate import Result
    from ox.train.metrics import Metric
    from ox_cli.model_source import Source

BATCH = 64  # a file may need much memory for a sample
OWN = ("correct", "answers", "count", "accuracy")  # said in words


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
    from ox.train.metrics.named import metrics_of
    from ox.train.metrics.numbers import Numbers
    from ox.train.show import percent
    from ox_cli.model_source import open_source

    source = open_source(model, recipe)
    page = source.needed_recipe()
    name, part = list(page.data().parts().items())[-1]
    metrics = metrics_of(page.optional("metrics"))
    numbers = None if metrics else Numbers()
    result = (_of_run if source.session is None else _of_file)(source, page, part, metrics, numbers)
    found = result.to_table() | (numbers.compute() if numbers is not None else {})
    if result.loss_sum != result.loss_sum:  # no page that says what the loss of a file is
        del found["loss"]
    if as_json:
        typer.echo(json.dumps({"model": source.name, "recipe": page.name, "part": name, **found}))
        return
    shown, accuracy = [], result.accuracy
    if result.correct is not None and accuracy is not None:
        shown.append(f"{result.correct:,} of {result.answers:,} right, {percent(result.correct / result.answers)}")
    shown += [f"{key} {value:.4g}" for key, value in found.items() if key not in OWN and isinstance(value, float)]
    typer.echo(f"{source.name} · {page.name}, {name}: {', '.join(shown)}")


def _of_run(source: Source, page: Recipe, part: Any, metrics: list[Metric], numbers: Any) -> Result:
    """What training would have measured: the page's own `validate`, `step` or `loss`."""
    from ox.train.batch import target_of
    from ox.train.evaluate import evaluate as measure
    from ox.train.measure import validation_loss

    def step(model: Any, batch: Any) -> tuple[Any, Any]:
        loss, outputs = validation_loss(page, model, batch)
        if numbers is not None:
            numbers.update(outputs, target_of(batch))
        return loss, outputs

    return measure(source.whole, step, _batches(page, part), metrics)


def _of_file(source: Source, page: Recipe, part: Any, metrics: list[Metric], numbers: Any) -> Result:
    """What a file answers: the page's `loss` of it, where that is what it is trained by."""
    from ox import from_numpy, no_grad
    from ox.errors import ArgumentError
    from ox.train.evaluate import Result, value_of
    from ox.train.samples import inputs_of

    own = page.optional("validate") or page.optional("step")
    loss = page.function("loss") if own is None and len(source.session.get_outputs()) == 1 else None
    result = Result()
    for batch in _batches(page, part):
        inputs, targets = inputs_of(batch, source.order)
        if targets is None:
            raise ArgumentError(f"the samples of {page.name} have no target to be right about")
        outputs, truth = from_numpy(source.run(inputs)), from_numpy(targets)
        with no_grad():
            value = float("nan") if loss is None else float(loss(outputs, truth))
        result.add(value, outputs, (*inputs, truth))
        for metric in metrics:
            metric.update(outputs, truth)
        if numbers is not None:
            numbers.update(outputs, truth)
    result.metrics = {metric.name: value_of(metric) for metric in metrics}
    return result


def _batches(page: Recipe, part: Any) -> Any:
    from ox.data import DataLoader

    loader = DataLoader(part, batch_size=BATCH, collate_fn=page.function("collate"))
    return (tuple(batch) if type(batch) is list else batch for batch in loader)
