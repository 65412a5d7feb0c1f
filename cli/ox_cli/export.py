"""`ox export`: writes a run's model, or with --train its training step, as a verified ONNX file."""

from __future__ import annotations

import shlex
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ox_cli.file_size import size

if TYPE_CHECKING:
    from ox.export import Report
    from ox.train import Run

MANY, FIRST = 8, 4  # inputs or outputs: more are not all shown
SAMPLES = 32  # samples of the validation data: for recording, verification and the range of synthetic samples


class Golden(StrEnum):
    """Which golden samples (inputs with expected outputs) the file contains."""

    auto = "auto"
    synthetic = "synthetic"
    none = "none"


class Optimize(StrEnum):
    """What the file is for."""

    inference = "inference"


class Target(StrEnum):
    """The runtimes that a file can be written for: those of `ox.graph.targets`, which the help does not load."""

    iree = "iree"
    mnn = "mnn"
    ncnn = "ncnn"
    opencv = "opencv"
    openvino = "openvino"
    tvm = "tvm"


def export(
    path: Annotated[
        Path,
        typer.Argument(
            help="The file to write, for example model.onnx. For a recipe with a tokenizer also a folder: the model "
            "with its tokenizer, for ox serve FOLDER."
        ),
    ],
    run: Annotated[Path | None, typer.Option(help="Folder or name of the run.", show_default="the newest run")] = None,
    recipe_file: Annotated[
        str | None,
        typer.Option("--recipe", help="Recipe file to use.", show_default="the run's copy"),
    ] = None,
    opset: Annotated[
        int | None, typer.Option(help="ONNX opset.", show_default="the lowest that works, at least 21")
    ] = None,
    golden: Annotated[
        Golden,
        typer.Option(help="Golden samples in the file: auto (real ones if the recipe allows it), synthetic or none."),
    ] = Golden.auto,
    train_step: Annotated[
        bool,
        typer.Option(
            "--train",
            help="Write the training step instead of the model: a file that trains without ox. With --recipe and "
            "without --run, it starts from the untrained model.",
        ),
    ] = False,
    freeze: Annotated[
        list[str] | None,
        typer.Option(
            help="With --train: parameters or modules not to train; * stands for any characters. May be repeated.",
            show_default=False,
        ),
    ] = None,
    optimize: Annotated[
        Optimize | None,
        typer.Option(
            help="inference: folds batch norms and parameters, for speed; the file can then not be fine-tuned as well.",
            show_default="the graph as the model has it",
        ),
    ] = None,
    seed: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="For a model that draws random numbers: they follow from a further input of that name, one int64.",
            show_default=False,
        ),
    ] = None,
    own_seed: Annotated[
        bool, typer.Option("--own-seed", help="For a model that draws random numbers: the file draws others each time.")
    ] = False,
    target: Annotated[
        Target | None,
        typer.Option(
            help="A runtime that lacks some operators: the file has others in their place, and is for inference.",
            show_default="none: a file for ONNX Runtime, and for most others",
        ),
    ] = None,
) -> None:
    """Export a run's model to an ONNX file, verified in ONNX Runtime before it is written."""
    from ox import train
    from ox.errors import RecipeError
    from ox.export import save
    from ox.export.files import check_writable
    from ox.train.recipe.export_inputs import input_names, to_export
    from ox_cli.errors import UsageError
    from ox_cli.export_data import class_names, metadata_of
    from ox_cli.export_step import export_step
    from ox_cli.export_text import export_text

    if freeze and not train_step:
        raise UsageError("--freeze belongs to --train", hint=f"ox export --train --freeze '{freeze[0]}' {path}")
    if train_step and golden is not Golden.auto:
        raise UsageError("a training step has no golden samples", hint="--train without --golden")
    if train_step and optimize is not None:
        raise UsageError("a training step is not for inference", hint="--train without --optimize")
    if train_step and target is not None:
        raise UsageError("a target is for inference", hint="--train without --target")
    if train_step and (seed is not None or own_seed):
        raise UsageError("a training step has a seed of its own", hint="--train without --seed and --own-seed")
    if seed is not None and own_seed:
        raise UsageError("--seed and --own-seed exclude each other", hint=f"ox export --own-seed {path}")
    if path.suffix == ".onnx" or train_step or not path.is_dir():
        check_writable(path)
    if train_step:
        start = None if run is None and recipe_file is not None else find_run(run)
        export_step(path, start, recipe_file, freeze or [], opset, SAMPLES)
        return
    found = find_run(run)
    recipe, trained = train.restore(found, None if recipe_file is None else train.load(recipe_file))
    manifest = found.manifest()
    recipe = replace(recipe, on_change="warning")  # of the samples only shapes and ranges enter the file
    try:
        model, rows = to_export(recipe, trained, SAMPLES)
    except RecipeError as error:
        if recipe_file is None and error.hint is not None:
            error.hint += f"; then --recipe {shlex.quote(found.config['recipe']['source'])}"
        raise
    if path.suffix != ".onnx" and recipe.optional("tokenizer") is not None:
        if target is not None or own_seed or seed is not None:
            raise UsageError("--target, --seed and --own-seed are for a file", hint=f"ox export {path}.onnx")
        report, said = export_text(path, recipe, model, rows, found, opset, optimize)
        for line in [*lines(report, str(found.folder), False)[:-1], *said, f"next: ox serve {path}"]:
            typer.echo(line)
        return
    check_writable(path)
    samples = tuple(x[:3] for x in rows) if golden is Golden.auto and recipe.shareable else golden is not Golden.none
    report = save(
        model if recipe.base is None else model.exported(),
        path,
        tuple(rows),
        input_names=input_names(recipe, model) or None if recipe.base is None else None,
        output_names=list(recipe.outputs) or None if recipe.base is None else None,
        opset=opset,
        golden=samples,
        labels=recipe.labels or class_names(manifest, model, rows),
        meaning={**recipe.inputs, **recipe.outputs},
        run=found.name,
        metadata=metadata_of(recipe, manifest),
        seed=own_seed or seed,
        optimize=optimize,
        target=target,
    )
    for line in lines(report, str(found.folder), isinstance(samples, tuple)):
        typer.echo(line)
    typer.echo(f"next: ox serve {path}")


def find_run(run: Path | None) -> Run:
    from ox import train

    if run is None:
        return train.newest_run()
    return train.find(run if run.is_dir() or not (Path("runs") / run).is_dir() else Path("runs") / run)


def lines(report: Report, source: str, real: bool) -> list[str]:
    """What was recorded, the largest differences in the verification, and the contents of the file."""
    at = "batch {} and {}".format(*report.recorded) if report.recorded else "the example's size"
    texts = [f"recorded {report.model} from {source} at {at}: {report.nodes} nodes, dims {_dims(report)}"]
    texts += report.limits
    head = f"verified on {report.proof.runtime}"
    for i, row in enumerate(report.rows):
        last = i == len(report.rows) - 1
        batch = f"{row.at}   " if row.batch is not None or row.sizes else ""
        limits = f"   (allowed {_tolerances(report)})" if last else ""
        texts.append(f"{head if i == 0 else ' ' * len(head)}   {batch}max |Δ| {row.max_abs:.1e}{limits}")
    if report.proof.note:
        texts.append(report.proof.note)
    facts = [f"{report.path}  {size(report.size)}", f"opset {report.opset}"]
    count = len(report.contract.samples)
    facts.append(f"{count} golden samples{', real' if real else ''}" if count else "no golden samples")
    labels = next((info.labels for info in report.contract.outputs if info.labels), None)
    if labels:
        facts.append(f"labels {label_range(labels)}")
    if report.data:
        facts.append(f"weights in {report.data.name}: keep both files together")
    return [*texts, " · ".join(facts)]


def _dims(report: Report) -> str:
    """Inputs and outputs; of many, such as a decoder's keys and values, the first ones."""
    from ox.graph.contract import show_dims

    ends = []
    for infos in (report.contract.inputs, report.contract.outputs):
        shown = [f"{info.name} {show_dims(info.dims)}" for info in (infos if len(infos) <= MANY else infos[:FIRST])]
        ends.append(", ".join(shown) + ("" if len(infos) <= MANY else f", and {len(infos) - FIRST} more"))
    return " → ".join(ends)


def _tolerances(report: Report) -> str:
    """The tolerances for the types of the outputs."""
    from ox import tolerance
    from ox.graph.contract import DTYPES

    types = {DTYPES[info.dtype] for info in report.contract.outputs}
    rules = [tolerance.rule(t, report.contract.through) for t in types if t in tolerance.TABLE]
    return " or ".join(f"{a:.0e} + {r:.0e}·max|y|" for a, r in rules) or "none: integers are exact"


def label_range(labels: tuple[str, ...]) -> str:
    """``0-9`` for consecutive numbers, else the first five labels."""
    if len(labels) > 2 and list(labels) == [
        str(int(labels[0]) + i) if labels[0].isdigit() else "" for i in range(len(labels))
    ]:
        return f"{labels[0]}-{labels[-1]}"
    texts = [label if label.strip() and label.isprintable() else repr(label) for label in labels]
    return ", ".join(texts) if len(texts) <= 6 else f"{', '.join(texts[:5])}, ... ({len(texts)})"
