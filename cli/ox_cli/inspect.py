"""`ox inspect`: shows the inputs, outputs and contents of an ONNX file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ox_cli.file_size import size

if TYPE_CHECKING:
    from ox.export import Summary
    from ox.graph.contract import TensorInfo

STEP = "ox.step"  # the metadata of a training step


def inspect(
    path: Annotated[Path, typer.Argument(help="An ONNX file, or a folder with model.onnx.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the inputs, outputs and contents of an ONNX file."""
    from ox.export.summary import inspect as read

    summary = read(path / "model.onnx" if path.is_dir() else path)
    if as_json:
        typer.echo(json.dumps(summary.to_json(), ensure_ascii=False))
        return
    rows = report(summary)
    width = max(len(label) for label, _ in rows)
    for label, text in rows:
        typer.echo(f"{label:<{width}}  {text}".rstrip())


def report(summary: Summary) -> list[tuple[str, str]]:
    """The lines as (label, text)."""
    from ox.graph.contract import DATASET

    made = f"by {summary.producer}" if summary.producer else ""
    head = [size(summary.size), f"opset {summary.opset}", f"IR {summary.ir_version}", made]
    rows = [(summary.path, " · ".join(filter(None, head)))]
    step = json.loads(summary.metadata.get(STEP, "{}"))
    state = step.get("state", {})
    rows += [("input", _end(info)) for info in summary.inputs if info.name not in state]
    rows += [("output", _end(info)) for info in summary.outputs if info.name not in state.values()]
    if summary.sizes:
        rows.append(("sizes", summary.sizes))
    if step:
        rows.append(("step", f"{step['optimizer']}, {len(state)} arrays of state, which begin in {step['initial']}"))
        if step["frozen"]:
            rows.append(("frozen", ", ".join(step["frozen"])))
    count = sum(summary.nodes.values())
    kinds = ", ".join(f"{n} {name}" if n > 1 else name for name, n in summary.nodes.items())
    rows.append(("nodes", f"{count}: {kinds}" if count else "none"))
    if summary.functions:
        rows.append(("functions", ", ".join(summary.functions)))
    constants = f" and {summary.constants} constants" if summary.constants else ""
    rows.append(("parameters", f"{summary.parameters:,} in {summary.initializers} initializers{constants}"))
    if summary.external:
        rows.append(("data", f"in {', '.join(summary.external)}"))
    if not step:
        rows.append(("contract", f"ox {summary.version}" if summary.version else "none: not written by ox"))
        rows.append(("golden", f"{summary.golden} samples" if summary.golden else "none"))
    if summary.run:
        rows.append(("run", summary.run))
    if (text := summary.metadata.get(DATASET)) is not None:
        rows.append(("trained on", _dataset(text, summary.path)))
    others = {key: text for key, text in summary.metadata.items() if key not in (STEP, DATASET)}
    return rows + [(key, text.replace("\n", ", ")) for key, text in others.items()]


def _dataset(text: str, path: str) -> str:
    from ox.errors import LoadError
    from ox.train.recipe.manifest import Manifest

    try:
        return str(Manifest.from_text(text, path))
    except LoadError as error:
        return error.what


def _end(info: TensorInfo) -> str:
    from ox_cli.export import label_range

    labels = f"labels {label_range(info.labels)}" if info.labels else None
    return " · ".join(filter(None, [str(info), info.meaning, labels]))
