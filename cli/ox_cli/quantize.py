"""`ox quantize`: writes an ONNX file in lower precision, measured beside the original before it appears."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ox_cli.file_size import size

if TYPE_CHECKING:
    from ox.export import QuantizeReport
    from ox.train import Recipe
    from ox.train.evaluation import Result
    from ox_cli.model_source import Source

SAMPLES, BLOCK_SIZE = 256, 32


class Scheme(StrEnum):
    """What weights and activations become."""

    float16 = "float16"
    bfloat16 = "bfloat16"
    int8_dynamic = "int8-dynamic"
    int8 = "int8"
    int4 = "int4"


class Method(StrEnum):
    """How calibration finds the ranges of activations."""

    minmax = "minmax"
    percentile = "percentile"
    entropy = "entropy"


def quantize(
    model: Annotated[Path, typer.Argument(help="The float32 file, for example model.onnx.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write.", show_default="MODEL.SCHEME.onnx")
    ] = None,
    scheme: Annotated[
        Scheme | None,
        typer.Option(
            help="float16; bfloat16 (weights); int8-dynamic (activations by the range of each batch); int8 "
            "(activations by calibration); int4 (weights of MatMul and Gemm, by block).",
            show_default="int8",
        ),
    ] = None,
    recipe_name: Annotated[
        str | None,
        typer.Option("--recipe", help="Recipe whose data is used.", show_default="the recipe that trained the model"),
    ] = None,
    run: Annotated[
        Path | None, typer.Option(help="Run whose recipe is used.", show_default="the run that trained the model")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Training samples to calibrate with.", show_default="256")
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(
            help="Typical inputs to calibrate and compare with: arrays by input name (.npz), rows along the first "
            "dimension.",
            show_default="training samples of the recipe",
        ),
    ] = None,
    method: Annotated[
        Method | None, typer.Option(help="How calibration of int8 finds the ranges.", show_default="minmax")
    ] = None,
    block_size: Annotated[
        int | None, typer.Option(help="Weights of int4 that share a scale; a power of two.", show_default="32")
    ] = None,
    min_accuracy: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Write nothing if the accuracy is lower; 0.97 is 97 %.", show_default=False),
    ] = None,
    mixed: Annotated[
        bool,
        typer.Option("--mixed", help="Leave layers in float32, the most sensitive first, until --min-accuracy holds."),
    ] = False,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="MODEL is a file of ox that another tool quantized: draw its golden samples again, in place.",
        ),
    ] = False,
) -> None:
    """Write an ONNX file in lower precision, and compare accuracy, size and latency with float32."""
    from ox_cli.errors import UsageError
    from ox_cli.model_source import open_source

    if run is not None and recipe_name is not None:
        raise UsageError("--run and --recipe both name a recipe", hint="one of them")
    if mixed and min_accuracy is None:
        raise UsageError("--mixed needs --min-accuracy", hint="--mixed --min-accuracy 0.97")
    if adopt and (out is not None or mixed):
        raise UsageError("--adopt changes a file in place", hint=f"ox quantize --adopt {model}")
    if inputs is not None and samples is not None:
        raise UsageError("--inputs and --samples both say what calibrates", hint="one of them")
    given = {
        "--scheme": scheme,
        "--inputs": inputs,
        "--samples": samples,
        "--method": method,
        "--block-size": block_size,
    }
    if adopt and (named := [name for name, value in given.items() if value is not None]):
        raise UsageError(
            f"{named[0]} is for files that ox quantizes, and --adopt for one of another tool",
            hint=f"ox quantize --adopt {model}",
        )
    chosen = scheme or Scheme.int8
    if method is not None and chosen is not Scheme.int8:
        raise UsageError(f"--method is for int8, and the scheme is {chosen.value}", hint="--scheme int8")
    if block_size is not None and chosen is not Scheme.int4:
        raise UsageError(f"--block-size is for int4, and the scheme is {chosen.value}", hint="--scheme int4")
    source = open_source(model, recipe_name)
    if run is not None:
        source.recipe = _recipe_of(run)
    if any(name.startswith("past_key_values.") for name in source.inputs):  # no sample of a recipe has a cache
        if min_accuracy is not None:
            raise UsageError(f"--min-accuracy is for models with classes, and {model} generates texts")
        source.recipe = None
    if min_accuracy is not None:
        source.require_recipe()
    results: list[Result] = []
    evaluate = None if source.recipe is None else evaluation_of(source, source.recipe, results, min_accuracy)
    if adopt:
        _adopt(model, evaluate, min_accuracy, results)
        return
    from ox.export import quantize as write

    report = write(
        model,
        out if out is not None else model.with_name(f"{model.stem}.{chosen.value}.onnx"),
        chosen.value,
        calibration=_calibration(source, inputs, samples or SAMPLES),
        method=(method or Method.minmax).value,
        block_size=BLOCK_SIZE if block_size is None else block_size,
        evaluate=evaluate,
        min_accuracy=min_accuracy,
        mixed=mixed,
    )
    for line in _lines(report, chosen, method or Method.minmax, results):
        typer.echo(line)
    typer.echo(f"next: ox serve {report.path}")


def _calibration(source: Source, inputs: Path | None, count: int) -> Any:
    if inputs is not None or source.recipe is None:
        return inputs
    return calibration_of(source, source.recipe, count)


def _adopt(path: Path, evaluate: Any, min_accuracy: float | None, results: list[Result]) -> None:
    from ox.export import adopt

    contract, _ = adopt(path, evaluate=evaluate, min_accuracy=min_accuracy)
    typer.echo(f"{path} · {len(contract.samples)} golden samples drawn again, tolerance {contract.tolerance or 0:.1e}")
    if results:
        typer.echo(", ".join(f"{name} {shown}" for name, shown in _scores(results[-1]).items()))
    typer.echo(f"next: ox serve {path}")


def _recipe_of(run: Path) -> Recipe:
    from ox import train

    return train.find(run if run.is_dir() or not (Path("runs") / run).is_dir() else Path("runs") / run).recipe()


def calibration_of(source: Source, recipe: Recipe, count: int) -> dict[str, Any]:
    """The inputs of training samples, by the names of the file."""
    from ox.errors import ArgumentError
    from ox.train.recipe.export_inputs import example_inputs
    from ox.train.samples import inputs_of

    if recipe.optional("example_inputs") is not None:
        arrays = example_inputs(recipe, count, source.inputs)
    else:
        arrays, _ = inputs_of(recipe.batch(count, train=True), source.inputs)
    if len(arrays) != len(source.inputs):
        raise ArgumentError(
            f"the samples of {recipe.name} do not fit the inputs of {source.name}",
            expected=", ".join(source.inputs),
            got=f"{len(arrays)} arrays",
            hint="--recipe, the recipe that trained the file",
        )
    return dict(zip(source.inputs, arrays, strict=True))


def evaluation_of(
    source: Source, recipe: Recipe, results: list[Result], min_accuracy: float | None
) -> Callable[[Any], float]:
    """The accuracy of a session on the validation data; `results` receives all numbers."""
    from ox.errors import ArgumentError
    from ox.train.metrics import metrics_of
    from ox_cli.evaluate import evaluate_file

    parts = recipe.data().parts()
    part = parts.get("validation", list(parts.values())[-1])

    def evaluate(session: Any) -> float:
        metrics = metrics_of(recipe.optional("metrics"))
        result = evaluate_file(replace(source, session=session), recipe, part, metrics, None)
        results.append(result)
        if result.accuracy is None and min_accuracy is not None:
            raise ArgumentError(f"{recipe.name} has no accuracy", expected="a classification for --min-accuracy")
        return float("nan") if result.accuracy is None else result.accuracy

    return evaluate


def _scores(result: Result) -> dict[str, str]:
    """The accuracy, else the loss, and the metrics of the recipe, as they are printed."""
    from ox.train.display import percent

    shown = {} if result.accuracy is None else {"accuracy": percent(result.accuracy)}
    if result.accuracy is None and result.loss == result.loss:
        shown["loss"] = f"{result.loss:.4g}"
    others = {key: value for key, value in result.metrics.items() if isinstance(value, float) and key not in shown}
    return shown | {key: f"{value:.4g}" for key, value in others.items()}


def _lines(report: QuantizeReport, scheme: Scheme, method: Method, results: list[Result]) -> list[str]:
    layers = len(report.quantized) + len(report.in_float)
    facts = [f"{report.source} → {report.path}", scheme.value]
    if scheme is Scheme.int8:
        facts.append(f"calibrated by {method.value}")
    facts.append(f"{len(report.quantized)} of {layers} layers")
    lines = [" · ".join(facts)]
    if report.in_float:
        lines.append(f"in float32   {', '.join(report.in_float)}")
    lines += [f"in float32   {reason}" for reason in report.left]
    if results:
        before, after = _scores(results[0]), _scores(results[-1])
        lines += [f"{name:<11}  {before[name]} → {after[name]}" for name in after if name in before]
        lines[-len(after)] += f"   ({results[0].count:,} validation samples)"
    if report.error is not None:
        lines.append(f"error        {report.error:.2g} of the outputs")
    lines.append(f"size         {size(report.size[0])} → {size(report.size[1])}   {report.size_ratio:.2f}×")
    if report.seconds is not None and report.latency_ratio is not None:
        before_us, after_us = (f"{1e6 * s:,.0f} µs" for s in report.seconds)
        batch = f"(batch {report.rows}, median)"
        lines.append(f"latency      {before_us} → {after_us}   {report.latency_ratio:.2f}×   {batch}")
    if report.contract.samples:
        tolerance = "" if report.contract.tolerance is None else f", tolerance {report.contract.tolerance:.1e}"
        lines.append(f"golden       {len(report.contract.samples)} samples drawn again{tolerance}")
    return lines
