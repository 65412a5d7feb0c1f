"""`ox export --train`: writes the training step of a run or a recipe as a verified ONNX file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ox_cli.file_size import size

if TYPE_CHECKING:
    from ox.export import StepReport
    from ox.train import Run


def export_step(
    path: Path, found: Run | None, recipe_file: str | None, freeze: Sequence[str], opset: int | None, samples: int
) -> None:
    """Write the step of a run's model, or without a run that of an untrained model of the recipe."""
    from ox import train
    from ox.export.example_inputs import Example
    from ox.export.training_step.save_step import write_step
    from ox.train.recipe.training_step import new_model, training_step

    recipe = None if recipe_file is None else train.load(recipe_file)
    if found is not None:
        recipe, model = train.restore(found, recipe)
        options, source = found.options, str(found.folder)
    else:
        assert recipe is not None
        model, options, source = (
            new_model(recipe),
            train.TrainConfig.from_defaults(recipe.defaults),
            "the untrained model",
        )
    step = training_step(recipe, model, samples, options)
    metadata = {"ox.recipe": recipe.name, **({"ox.run": found.name} if found is not None else {})}
    report = write_step(
        {"": model},
        step,
        step.optimizer,
        path,
        Example(dict(step.example), dict(step.dims), None),
        target=step.target or 0,
        clip=options.clip,
        freeze=tuple(freeze),
        metrics=None if step.target is not None else {},
        output_names=list(recipe.outputs) or None,
        opset=opset,
        seed=options.seed,
        metadata=metadata,
    )
    for line in lines(report, source, options):
        typer.echo(line)


def lines(report: StepReport, source: str, options: Any) -> list[str]:
    """What was recorded, the largest differences in the verification, and the files."""
    layout = report.layout
    clip = "" if options.clip is None else f", gradients clipped at {options.clip:g}"
    counts = (
        f"{sum(kind == 'parameter' for kind in layout.kinds.values())} parameters trained, {len(layout.frozen)} frozen"
    )
    texts = [
        f"recorded a step of {report.model} from {source} with {layout.optimizer}{clip}: {report.nodes} nodes",
        f"{', '.join([*layout.batch, *layout.lr])} → {', '.join([layout.loss, *layout.metrics])} · {counts}",
    ]
    head = f"verified on {report.rows[0].runtime}"
    for i, row in enumerate(report.rows):
        at = "the example" if row.batch is None else f"batch {row.batch}"
        texts.append(
            f"{head if i == 0 else ' ' * len(head)}   {at}, step {row.steps}   max |Δ| {row.max_abs:.1e} of {row.name}"
            f" (allowed {row.allowed:.1e})"
        )
    if report.undecided:
        few = ", ".join(report.undecided[:4])
        more = f" and {len(report.undecided) - 4} more" if len(report.undecided) > 4 else ""
        texts.append(f"rounding decides {few}{more}: a runtime may end elsewhere there")
    facts = [f"{report.path}  {size(report.size)}", f"opset {report.opset}"]
    facts.append(f"{report.initial.name}: {len(layout.state)} arrays of state")
    facts.append(f"{report.evaluation.name}: evaluation")
    return [*texts, " · ".join(facts)]
