"""`ox predict`: what a model says to one input."""

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
PARTS = {"train": "train", "validation": "validation", "held-back": "held back"}
SHOWN = 3  # of the most probable classes


def predict(
    model: Annotated[Path, typer.Argument(help="A run's folder or an ONNX file.")],
    input: Annotated[
        str,
        typer.Argument(
            help="A sample or a batch: .npy, .npz, .csv or .json, a picture; or one of the recipe's: held-back:3"
        ),
    ],
    recipe: Annotated[
        str | None, typer.Option(help="Whose data held-back:3 speaks of.", show_default="what trained the model")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a sample.")] = False,
) -> None:
    """Run a model, from a run or an ONNX file, on an input of yours."""
    from ox_cli.model_source import open_source

    source = open_source(model, recipe)
    arrays, targets = _read(source, input)
    for row, scores in enumerate(source.run(arrays)):
        truth = None if targets is None else targets[row]
        if scores.ndim != 1 or len(scores) < 2 or (truth is not None and truth.dtype.kind == "f"):
            told = {} if truth is None else {"truth": truth.tolist()}
            known = "" if truth is None else f" · the truth is {truth}"
            typer.echo(json.dumps({"output": scores.tolist(), **told}) if as_json else f"{scores}{known}")
            continue
        shares = _shares(scores)
        labels = (
            source.labels if source.labels and len(source.labels) == len(scores) else list(map(str, range(len(scores))))
        )
        order = np.argsort(-shares, kind="stable")
        if as_json:
            told = {} if truth is None else {"truth": labels[int(truth)]}
            probabilities = {labels[i]: float(shares[i]) for i in range(len(scores))}
            typer.echo(json.dumps({"label": labels[order[0]], **told, "probabilities": probabilities}))
        else:
            rest = ", ".join(f"{labels[i]} {shares[i]:.1%}" for i in order[1 : 1 + SHOWN])
            known = "" if truth is None else f" · the truth is {labels[int(truth)]}"
            typer.echo(f"{labels[order[0]]}  {shares[order[0]]:.1%}  (then {rest}){known}")


def _shares(scores: Array) -> Array:
    """The probabilities of the classes: a model's output may be these, or scores for a Softmax."""
    if (scores >= 0).all() and abs(scores.sum(dtype=np.float64) - 1) < 1e-3:
        return scores
    powers = np.exp(scores - scores.max())
    shares: Array = powers / powers.sum()
    return shares


def _read(source: Source, text: str) -> tuple[list[Array], Array | None]:
    """The input arrays with a leading batch axis, and the true answers where the input comes from a recipe."""
    from ox.errors import ArgumentError
    from ox_cli.inputs import read

    part, colon, number = text.partition(":")
    if colon and part in PARTS:
        from ox.train.datasets import is_stream
        from ox.train.samples import batches

        parts = source.needed_recipe().data().parts()
        if PARTS[part] not in parts:
            raise ArgumentError(f"the recipe has no {PARTS[part]} data", expected=" or ".join(parts))
        data = parts[PARTS[part]]
        if is_stream(data):
            data = list(islice(iter(data), int(number) + 1 if number.isdigit() else 0))
        if not (number.isascii() and number.isdigit() and int(number) < len(data)):
            raise ArgumentError(f"there is no sample {number} in {part}", expected=f"0 to {len(data) - 1}")
        collate = source.needed_recipe().function("collate")
        inputs, targets = next(batches([data[int(number)]], 1, collate, source.order))
        if targets is not None and targets.dtype.kind != "f" and (targets.ndim != 1 or targets.dtype.kind not in "iu"):
            targets = None  # neither a number nor a class
        return inputs, targets
    return read(source, Path(text)), None
