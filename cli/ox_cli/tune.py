"""`ox tune serve`: how a model is best served on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ox_cli import outputs

if TYPE_CHECKING:
    from ox.serve.engine.tune import Point, Tuning

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def tune() -> None:
    """Measure, and write down the settings that suit this machine."""


@app.command()
def serve(
    model: Annotated[Path, typer.Argument(help="An ONNX file.", metavar="MODEL")],
    out: Annotated[Path | None, typer.Option(help="Write the settings, as ox.toml has them, to this new file.")] = None,
    chart: Annotated[
        Path | None, typer.Option(help="Where the curves go: .png, .svg or .pdf; beside --out if not given.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="How long to measure, about; little time, fewer settings.", min=1)
    ] = 20.0,
    clients: Annotated[int, typer.Option(help="Clients that each wait for their answer.", min=1, max=4096)] = 32,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
) -> None:
    """Measure instances, threads and batch sizes through the server's own batcher; recommend, and show why."""
    from rich.console import Console

    from ox.errors import ArgumentError
    from ox.serve.engine.curve import check, draw
    from ox.serve.engine.tune import tune as measure

    if out is not None and out.exists():
        raise ArgumentError(f"{out} is there already", hint="another name; then move the table where it belongs")
    chart = chart or (out.with_suffix(".png") if out is not None else None)
    if chart is not None:
        check(chart)
    outputs.check(out, chart)
    with Console(stderr=True).status("measuring") as status:

        def tell(point: Point) -> None:
            status.update(f"{point.setting.layout}, batches up to {point.setting.max_rows}: {point.rate:,.0f} rows/s")

        tuning = measure(model, device=device, seconds=seconds, clients=clients, tell=tell)
    _show(tuning)
    typer.echo(tuning.toml(), nl=False)
    if out is not None:
        outputs.write(out, lambda: out.write_text(tuning.toml()))
    if chart is not None:
        draw(tuning, chart)
    written = [str(path) for path in (out, chart) if path is not None]
    if written:
        typer.echo(f"written: {', '.join(written)}")


def _show(tuning: Tuning) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for points, title in (
        (tuning.points, f"{tuning.name}, {tuning.best.clients} clients"),
        (tuning.loads, f"{tuning.best.setting.layout}, batches up to {tuning.best.setting.max_rows}, other loads"),
    ):
        table = Table(title=title, title_justify="left")
        heads = ("instances × threads", "most rows", "clients", "rows/s", "p50 ms", "p99 ms", "rows a batch", "")
        for head in heads:
            table.add_column(head, justify="left" if head == heads[0] else "right")
        for point in points:
            table.add_row(*_cells(point), "←" if point is tuning.best else "")
        console.print(table)
    if tuning.skipped:
        tried = len(tuning.points)
        console.print(
            f"{tried} of {tried + tuning.skipped} settings fitted into the time; more --seconds, more settings"
        )
    if tuning.why is not None:
        console.print(f"batching is off: {tuning.why}")


def _cells(point: Point) -> list[str]:
    setting = point.setting
    times = [f"{1e3 * point.p50:.3g}", f"{1e3 * point.p99:.3g}"]
    return [
        setting.layout,
        str(setting.max_rows),
        str(point.clients),
        f"{point.rate:,.0f}",
        *times,
        f"{point.rows:.1f}",
    ]
