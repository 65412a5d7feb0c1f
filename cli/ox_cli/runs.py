"""`ox runs`: what was trained here, side by side, as curves, and as a page to hand on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ox.train.summary import Summary

app = typer.Typer(add_completion=False, help="List runs, compare and plot them, or write the report of one.")

Folder = Annotated[Path, typer.Option(help="The folder with the runs.")]
Names = Annotated[list[str], typer.Argument(help="Folders of runs, or their names.", metavar="RUN...")]


@app.callback(invoke_without_command=True)
def runs(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        list_runs()


@app.command("list")
def list_runs(
    out: Folder = Path("runs"), as_json: Annotated[bool, typer.Option("--json", help="One object a line.")] = False
) -> None:
    """What was trained, oldest first."""
    from ox.errors import LoadError
    from ox.train.run import runs_in
    from ox.train.summary import summarize

    found, damaged = [], list[LoadError]()
    for run in runs_in(out, damaged):
        try:
            found.append(summarize(run))
        except LoadError as error:
            damaged.append(error)
    if not found and not damaged:
        raise LoadError(f"there is no run in {out}", hint="ox train digits makes one")
    found.sort(key=lambda s: (str(s.run.config.get("run", {}).get("made")), s.run.name))
    for each in damaged:
        typer.echo(f"left out: {_printable(each.one_line())}", err=True)
    if as_json:
        for one in found:
            typer.echo(json.dumps(_plain(one)))
        return
    rows = [
        [
            s.run.name,
            s.run.config["recipe"]["name"],
            str(s.run.config["run"]["made"])[:16].replace("T", " "),
            f"{len(s.history)}/{s.run.options.epochs}",
            str(s.best["epoch"]) if s.best else NOTHING,
            _figure(s, "validation loss"),
            _score(s, "validation"),
            _score(s, "held back"),
            f"{s.seconds:,.0f} s",
            s.state,
        ]
        for s in found
    ]
    accuracies = all("validation accuracy" in s.figures() or s.best is None for s in found)
    score = "accuracy" if accuracies else "score"
    names = ["run", "recipe", "made", "epochs", "best", "validation", score, "held back", "time", ""]
    _table(names, rows, left={0, 1, 2, 9})


@app.command()
def compare(names: Names) -> None:
    """What several runs were told differently, and what came of it."""
    from ox.train.summary import differing

    found = _found(names, least=2)
    told = differing([s.run for s in found])
    figures = list(dict.fromkeys(name for s in found for name in s.figures()))
    rows = [[name, *values] for name, values in told.items()]
    rows += [[name, *(_figure(s, name) for s in found)] for name in figures]
    rows.append(["epochs", *(str(len(s.history)) for s in found)])
    rows.append(["time", *(f"{s.seconds:,.0f} s" for s in found)])
    _table(["", *(s.run.name for s in found)], rows, left={0})


@app.command()
def plot(
    names: Names,
    metric: Annotated[str, typer.Option(help="A name in metrics.jsonl.")] = "validation_loss",
    output: Annotated[Path, typer.Option("--output", "-o", help="A .png, .svg or .pdf file.")] = Path("runs.png"),
) -> None:
    """One metric of several runs by epoch, as a picture."""
    from ox.train import summary

    summary.save_figure(summary.plot(_found(names, least=1), metric), output)
    typer.echo(f"{metric} of {len(names)} run{'s' * (len(names) != 1)}: {output}")


@app.command()
def report(
    name: Annotated[str | None, typer.Argument(help="A run's folder or name.", show_default="the newest")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file.", show_default="report.html in the run's folder")
    ] = None,
) -> None:
    """One page that needs nothing else: curves, mistakes, environment, command. It holds real samples."""
    from ox.train import find, newest_run
    from ox.train.report import write

    typer.echo(write(newest_run() if name is None else find(name), output))


def _found(names: list[str], least: int) -> list[Summary]:
    from ox.train import find
    from ox.train.summary import summarize
    from ox_cli.errors import UsageError

    if len(names) < least:
        raise UsageError("there is nothing to compare one run with", hint="ox runs compare RUN RUN")
    return [summarize(find(name)) for name in names]


NOTHING = "–"  # where a run has no such figure


def _figure(of: Summary, name: str) -> str:
    from ox.train.report.page import shown

    value = of.figures().get(name)
    return NOTHING if value is None else shown(name, value)


def _score(of: Summary, part: str) -> str:
    """The one figure to judge a run by: accuracy where there are classes, else its first metric, else the loss."""
    from ox.train.report.page import shown

    figures = {k.removeprefix(f"{part} "): v for k, v in of.figures().items() if k.startswith(f"{part} ")}
    if "accuracy" in figures:
        return shown("accuracy", figures["accuracy"])
    name = next((k for k in figures if k != "loss"), "loss")
    return NOTHING if name not in figures else f"{name} {shown(name, figures[name])}"


def _plain(of: Summary) -> dict[str, Any]:
    return {
        "run": of.run.name,
        "recipe": of.run.config["recipe"]["name"],
        "made": of.run.config["run"]["made"],
        "state": of.state,
        "epochs": len(of.history),
        "best_epoch": of.best["epoch"] if of.best else None,
        "seconds": of.seconds,
        **{name.replace(" ", "_"): value for name, value in of.figures().items()},
    }


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
    if not console.is_terminal:  # a file or a pipe has no width to keep to
        console.width = 400
    console.print(table)


def _printable(text: str) -> str:
    """A folder's name may hold anything, even what recolours a terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
