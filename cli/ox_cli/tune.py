"""`ox tune serve`: the fastest serving settings for a model on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ox_cli import outputs

if TYPE_CHECKING:
    from ox.serve.tuning.tune import Point, Tuning

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def tune() -> None:
    """Find the fastest settings for this machine."""


@app.command()
def serve(
    model: Annotated[Path, typer.Argument(help="An ONNX file.", metavar="MODEL")],
    out: Annotated[
        Path | None, typer.Option(help="Write the settings to this new file, as a table for ox.toml.")
    ] = None,
    chart: Annotated[
        Path | None, typer.Option(help="Write a chart: .png, .svg or .pdf.", show_default="next to --out")
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="Approximate measuring time; less time, fewer settings.", min=1)
    ] = 20.0,
    clients: Annotated[
        int, typer.Option(help="Concurrent clients; each sends its next request after the response.", min=1, max=4096)
    ] = 32,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1 or auto.")] = "auto",
) -> None:
    """Measure instances, threads and batch sizes with the server's batcher, and recommend the best settings."""
    from rich.console import Console

    from ox.errors import ArgumentError
    from ox.serve.tuning.chart import check, draw
    from ox.serve.tuning.tune import tune as measure

    if out is not None and out.exists():
        raise ArgumentError(f"{out} exists already", hint="another name; then move its table to your ox.toml")
    chart = chart or (out.with_suffix(".png") if out is not None else None)
    if chart is not None:
        check(chart)
    outputs.check(out, chart)
    with Console(stderr=True).status("measuring") as status:

        def tell(point: Point) -> None:
            status.update(
                f"{point.setting.layout}, batches up to {point.setting.max_rows}: {point.rate:,.0f} samples/s"
            )

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
        heads = ("instances × threads", "max batch", "clients", "samples/s", "p50 ms", "p99 ms", "mean batch", "")
        for head in heads:
            table.add_column(head, justify="left" if head == heads[0] else "right")
        for point in points:
            table.add_row(*_cells(point), "←" if point is tuning.best else "")
        console.print(table)
    if tuning.skipped:
        tried = len(tuning.points)
        console.print(
            f"{tried} of {tried + tuning.skipped} settings were measured in this time; for more, raise --seconds"
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
