"""`ox predict`: runs a model on an input file or on a sample of a recipe."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

if TYPE_CHECKING:
    from ox_cli.model_source import Source

Array = np.ndarray[Any, Any]
PARTS = {
    "train": "train",
    "validation": "validation",
    "test": "test",
    "held-back": "test",
}  # "held-back" is the older name
RUNNERS_UP = 3  # classes after the most probable one


def predict(
    model: Annotated[Path, typer.Argument(help="A run's folder or an ONNX file.")],
    input: Annotated[
        str,
        typer.Argument(
            help="File with a sample or a batch (.npy, .npz, .csv, .json or an image), or PART:INDEX, such as test:3."
        ),
    ],
    recipe: Annotated[
        str | None,
        typer.Option(help="Recipe that PART:INDEX refers to.", show_default="the recipe that trained the model"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per sample.")] = False,
) -> None:
    """Run a model, from a run or an ONNX file, on your own input.

    PART is a part of the recipe's data: train, validation or test.
    """
    from ox_cli.model_source import open_source

    source = open_source(model, recipe)
    arrays, targets = _read(source, input)
    for row, scores in enumerate(source.run(arrays)):
        truth = None if targets is None else targets[row]
        if scores.ndim != 1 or len(scores) < 2 or (truth is not None and truth.dtype.kind == "f"):
            target = {} if truth is None else {"truth": truth.tolist()}
            suffix = "" if truth is None else f" · target: {truth}"
            typer.echo(json.dumps({"output": scores.tolist(), **target}) if as_json else f"{scores}{suffix}")
            continue
        probabilities = _probabilities(scores)
        labels = (
            source.labels if source.labels and len(source.labels) == len(scores) else list(map(str, range(len(scores))))
        )
        order = np.argsort(-probabilities, kind="stable")
        if as_json:
            target = {} if truth is None else {"truth": labels[int(truth)]}
            by_label = {labels[i]: float(probabilities[i]) for i in range(len(scores))}
            typer.echo(json.dumps({"label": labels[order[0]], **target, "probabilities": by_label}))
        else:
            rest = ", ".join(f"{labels[i]} {probabilities[i]:.1%}" for i in order[1 : 1 + RUNNERS_UP])
            suffix = "" if truth is None else f" · target: {labels[int(truth)]}"
            typer.echo(f"{labels[order[0]]}  {probabilities[order[0]]:.1%}  (then {rest}){suffix}")


def _probabilities(scores: Array) -> Array:
    """The probabilities of the classes: the outputs themselves if they sum to 1, else their softmax."""
    if (scores >= 0).all() and abs(scores.sum(dtype=np.float64) - 1) < 1e-3:
        return scores
    powers = np.exp(scores - scores.max())
    probabilities: Array = powers / powers.sum()
    return probabilities


def _read(source: Source, text: str) -> tuple[list[Array], Array | None]:
    """The input arrays with a leading batch axis, and the targets if the input is a sample of a recipe."""
    from ox.errors import ArgumentError
    from ox_cli.inputs import read

    part, colon, number = text.partition(":")
    if colon and part in PARTS:
        from ox.train.recipe.datasets import is_stream
        from ox.train.samples import batches

        parts = source.require_recipe().data().parts()
        if PARTS[part] not in parts:
            raise ArgumentError(f"the recipe has no {PARTS[part]} data", expected=" or ".join(parts))
        data = parts[PARTS[part]]
        if is_stream(data):
            data = list(islice(iter(data), int(number) + 1 if number.isdigit() else 0))
        if not (number.isascii() and number.isdigit() and int(number) < len(data)):
            raise ArgumentError(f"there is no sample {number} in {part}", expected=f"0 to {len(data) - 1}")
        collate = source.require_recipe().function("collate")
        inputs, targets = next(batches([data[int(number)]], 1, collate, source.order))
        if targets is not None and targets.dtype.kind != "f" and (targets.ndim != 1 or targets.dtype.kind not in "iu"):
            targets = None  # neither numbers nor classes
        return inputs, targets
    return read(source, Path(text)), None
