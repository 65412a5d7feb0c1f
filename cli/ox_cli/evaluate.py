"""`ox eval`: loss, accuracy and the recipe's metrics on the test set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ox.train import Recipe
    from ox.train.evaluation import Result
    from ox.train.metrics import Metric
    from ox_cli.model_source import Source

BATCH = 64  # small, because a model may need much memory per sample
COUNTS = ("correct", "answers", "count", "accuracy")  # printed as "355 of 360 correct (98.6 %)"


def evaluate(
    model: Annotated[
        Path | None,
        typer.Argument(help="A run's folder or an ONNX file.", show_default="the newest run"),
    ] = None,
    recipe_name: Annotated[
        str | None,
        typer.Option("--recipe", help="Recipe whose data is used.", show_default="the recipe that trained the model"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Evaluate a run or an ONNX file on the test set (without one: on the validation data)."""
    from ox.train.display import percent
    from ox.train.metrics import metrics_of
    from ox.train.metrics.regression_scores import RegressionScores
    from ox.train.recipe.datasets import full_name
    from ox_cli.model_source import open_source

    source = open_source(model, recipe_name)
    recipe = source.require_recipe()
    name, part = list(recipe.data().parts().items())[-1]
    metrics = metrics_of(recipe.optional("metrics"))
    numbers = None if metrics else RegressionScores()
    result = (_evaluate_run if source.session is None else evaluate_file)(source, recipe, part, metrics, numbers)
    table = result.to_table() | (numbers.compute() if numbers is not None else {})
    if result.loss_sum != result.loss_sum:  # the recipe defines no loss for the outputs of a file
        del table["loss"]
    if as_json:
        typer.echo(json.dumps({"model": source.name, "recipe": recipe.name, "part": name, **table}))
        return
    texts, accuracy = [], result.accuracy
    if result.correct is not None and accuracy is not None:
        texts.append(f"{result.correct:,} of {result.answers:,} correct ({percent(result.correct / result.answers)})")
    texts += [f"{key} {value:.4g}" for key, value in table.items() if key not in COUNTS and isinstance(value, float)]
    typer.echo(f"{source.name} · {recipe.name}, {full_name(name)}: {', '.join(texts)}")


def _evaluate_run(source: Source, recipe: Recipe, part: Any, metrics: list[Metric], numbers: Any) -> Result:
    """Evaluates a run as training does: with the recipe's `validate`, `step` or `loss`."""
    from ox.train.batch import target_of
    from ox.train.evaluation import evaluate as measure
    from ox.train.loss import validation_loss
    from ox.train.loss_weight import batch_weights

    def step(model: Any, batch: Any) -> tuple[Any, Any]:
        loss, outputs = validation_loss(recipe, model, batch)
        if numbers is not None:
            numbers.update(outputs, target_of(batch))
        return loss, outputs

    return measure(source.trained, step, _batches(recipe, part), metrics, batch_weights(recipe)[1])


def evaluate_file(source: Source, recipe: Recipe, part: Any, metrics: list[Metric], numbers: Any) -> Result:
    """Evaluates an ONNX file, with the recipe's `loss` if it has no `validate` or `step`."""
    from ox import from_numpy, no_grad
    from ox.errors import ArgumentError
    from ox.train.evaluation import Result, value_of
    from ox.train.loss_weight import batch_weights
    from ox.train.samples import inputs_of

    custom_step = recipe.optional("validate") or recipe.optional("step")
    loss = recipe.function("loss") if custom_step is None and len(source.session.get_outputs()) == 1 else None
    result, weight = Result(), batch_weights(recipe)[1]
    for batch in _batches(recipe, part):
        inputs, targets = inputs_of(batch, source.order)
        if targets is None:
            raise ArgumentError(f"the samples of {recipe.name} have no target, so there is nothing to compare with")
        outputs, truth = from_numpy(source.run(inputs)), from_numpy(targets)
        with no_grad():
            value = float("nan") if loss is None else float(loss(outputs, truth))
        result.add(value, outputs, (*inputs, truth), weight((*inputs, truth)))
        for metric in metrics:
            metric.update(outputs, truth)
        if numbers is not None:
            numbers.update(outputs, truth)
    result.metrics = {metric.name: value_of(metric) for metric in metrics}
    return result


def _batches(recipe: Recipe, part: Any) -> Any:
    from ox.data import DataLoader

    loader = DataLoader(part, batch_size=BATCH, collate_fn=recipe.function("collate"))
    return (tuple(batch) if type(batch) is list else batch for batch in loader)
