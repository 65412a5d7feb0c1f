"""`ox runs`: lists, compares and plots training runs, and writes reports."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ox.train.run.summary import Summary

app = typer.Typer(add_completion=False, help="List, compare and plot training runs, or write an HTML report.")

Folder = Annotated[Path, typer.Option(help="Folder that contains the runs.")]
Names = Annotated[list[str], typer.Argument(help="Folders or names of runs.", metavar="RUN...")]


@app.callback(invoke_without_command=True)
def runs(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        list_runs()


@app.command("list")
def list_runs(
    out: Folder = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """List runs, oldest first, with their results."""
    from ox.errors import LoadError
    from ox.train.run.run import runs_in
    from ox.train.run.summary import summarize

    summaries, damaged = [], list[LoadError]()
    for run in runs_in(out, damaged):
        try:
            summaries.append(summarize(run))
        except LoadError as error:
            damaged.append(error)
    if not summaries and not damaged:
        raise LoadError(f"there is no run in {out}", hint="start one: ox train digits")
    summaries.sort(key=lambda s: (str(s.run.config.get("run", {}).get("made")), s.run.name))
    for each in damaged:
        typer.echo(f"skipped: {_printable(each.one_line())}", err=True)
    if as_json:
        for one in summaries:
            typer.echo(json.dumps(_to_json(one)))
        return
    rows = [
        [
            s.run.name,
            s.run.config["recipe"]["name"],
            str(s.run.config["run"]["made"])[:16].replace("T", " "),
            f"{len(s.history)}/{s.run.options.epochs}",
            str(s.best["epoch"]) if s.best else MISSING,
            _metric(s, "validation loss"),
            _score(s, "validation"),
            _score(s, "test"),
            f"{s.seconds:,.0f} s",
            s.state,
        ]
        for s in summaries
    ]
    accuracies = all("validation accuracy" in s.figures() or s.best is None for s in summaries)
    score = "accuracy" if accuracies else "score"
    names = ["run", "recipe", "started", "epochs", "best", "val. loss", score, "test set", "time", ""]
    _table(names, rows, left={0, 1, 2, 9})


@app.command()
def compare(names: Names) -> None:
    """Compare runs: the options that differ, and the results."""
    from ox.train.run.summary import config_differences

    summaries = _summaries(names, least=2)
    settings = config_differences([s.run for s in summaries])
    figures = list(dict.fromkeys(name for s in summaries for name in s.figures()))
    rows = [[name, *values] for name, values in settings.items()]
    rows += [[name, *(_metric(s, name) for s in summaries)] for name in figures]
    rows.append(["epochs", *(str(len(s.history)) for s in summaries)])
    rows.append(["time", *(f"{s.seconds:,.0f} s" for s in summaries)])
    _table(["", *(s.run.name for s in summaries)], rows, left={0})


@app.command()
def plot(
    names: Names,
    metric: Annotated[str, typer.Option(help="Metric to plot: a name in metrics.jsonl.")] = "validation_loss",
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write: .png, .svg or .pdf.")] = Path(
        "runs.png"
    ),
) -> None:
    """Plot one metric of one or more runs over the epochs."""
    from ox.train.run import summary

    summary.save_figure(summary.plot(_summaries(names, least=1), metric), output)
    typer.echo(f"{metric} of {len(names)} run{'s' * (len(names) != 1)}: {output}")


@app.command()
def report(
    name: Annotated[
        str | None, typer.Argument(help="Folder or name of the run.", show_default="the newest run")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write.", show_default="report.html in the run's folder"),
    ] = None,
) -> None:
    """Write a self-contained HTML report: curves, confusion matrix, worst samples, environment and command.

    The report shows samples of the data set: check them before you share it.
    """
    from ox.train import find, newest_run
    from ox.train.report import write

    typer.echo(write(newest_run() if name is None else find(name), output))


def _summaries(names: list[str], least: int) -> list[Summary]:
    from ox.train import find
    from ox.train.run.summary import summarize
    from ox_cli.errors import UsageError

    if len(names) < least:
        raise UsageError("ox runs compare needs two or more runs", hint="ox runs compare RUN RUN")
    return [summarize(find(name)) for name in names]


MISSING = "–"  # where a run lacks the value


def _metric(of: Summary, name: str) -> str:
    from ox.train.report.page import format_metric

    value = of.figures().get(name)
    return MISSING if value is None else format_metric(name, value)


def _score(of: Summary, part: str) -> str:
    """The main metric of a run: accuracy for classification, else its first metric, else the loss."""
    from ox.train.report.page import format_metric

    figures = {k.removeprefix(f"{part} "): v for k, v in of.figures().items() if k.startswith(f"{part} ")}
    if "accuracy" in figures:
        return format_metric("accuracy", figures["accuracy"])
    name = next((k for k in figures if k != "loss"), "loss")
    return MISSING if name not in figures else f"{name} {format_metric(name, figures[name])}"


def _to_json(of: Summary) -> dict[str, Any]:
    return {
        "run": of.run.name,
        "recipe": of.run.config["recipe"]["name"],
        "made": of.run.config["run"]["made"],
        "state": of.state,
        "epochs": len(of.history),
        "best_epoch": of.best["epoch"] if of.best else None,
        "seconds": of.seconds,
        **{_key(name): value for name, value in of.figures().items()},
    }


def _key(name: str) -> str:
    """``test accuracy`` is ``held_back_accuracy``, as in result.json."""
    return re.sub("^test ", "held back ", name).replace(" ", "_")


def _table(names: list[str], rows: list[list[str]], left: set[int]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for i, name in enumerate(names):
        table.add_column(
            Text(_printable(name)), justify="left" if i in left else "right", no_wrap=True, header_style="bold"
        )
    for row in rows:
        table.add_row(*map(Text, map(_printable, row)))
    console = Console(highlight=False)
    if not console.is_terminal:  # a file or a pipe has no width
        console.width = 400
    console.print(table)


def _printable(text: str) -> str:
    """Escapes control characters in names of folders, such as terminal colour codes."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
