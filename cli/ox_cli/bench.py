"""`ox bench`: load on a server of the Open Inference Protocol V2, ours or another, and how it took it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ox_cli import outputs
from ox_cli.errors import UsageError


def bench(
    url: Annotated[
        str, typer.Argument(help="http://, https://, grpc:// or grpcs://, host and port; or unix:PATH, grpc+unix:PATH.")
    ],
    model: Annotated[str | None, typer.Option(help="The model's name; the server's first one if not given.")] = None,
    data: Annotated[Path | None, typer.Option(help="Inputs: a request as .json, or arrays by name as .npz.")] = None,
    rows: Annotated[int, typer.Option(help="Size of the first dimension where the model leaves it open.")] = 1,
    shape: Annotated[list[str] | None, typer.Option(help="An input's whole shape, such as ids=1,128.")] = None,
    binary: Annotated[bool, typer.Option("--binary/--json", help="Tensors as bytes, or as JSON numbers.")] = True,
    concurrency: Annotated[
        str, typer.Option(help="Clients that each wait for their answer: one step a number.  [1,8,32; open loop: 128]")
    ] = "",
    rate: Annotated[str, typer.Option(help="Requests a second, sent whether or not answers come (open loop).")] = "",
    arrivals: Annotated[str, typer.Option(help="Of an open loop: poisson or constant.")] = "poisson",
    seconds: Annotated[float, typer.Option(help="Measured seconds of a step.")] = 5.0,
    warmup: Annotated[float, typer.Option(help="Seconds before them that do not count.")] = 1.0,
    timeout: Annotated[float, typer.Option(help="Seconds after which a request counts as unanswered.")] = 10.0,
    processes: Annotated[int, typer.Option(help="Processes that share the load.")] = 1,
    check: Annotated[
        bool, typer.Option("--check", help="Answers must equal the first, not only look like it.")
    ] = False,
    key: Annotated[str | None, typer.Option(envvar="OX_KEY", help="API key or bearer token.")] = None,
    json_out: Annotated[Path | None, typer.Option(help="Write the figures as JSON.")] = None,
    chart: Annotated[Path | None, typer.Option(help="Draw the latencies: .png, .svg or .pdf.")] = None,
) -> None:
    """Load a V2 server over HTTP or gRPC: throughput, percentiles of the latency, every error counted.

    Exit code 1 when nothing was answered, or something wrongly; refusals such as 503 are counted and shown.
    """
    from rich.console import Console

    from ox.bench import Plan, run
    from ox.bench.table import show

    if chart is not None:
        from ox.bench.chart import check as can_draw

        can_draw(chart)
    outputs.check(json_out, chart)
    plan = Plan(
        concurrency=tuple(int(number) for number in _numbers("--concurrency", concurrency)),
        rates=_numbers("--rate", rate),
        arrivals=arrivals,
        seconds=seconds,
        warmup=warmup,
        timeout=timeout,
        binary=binary,
        rows=rows,
        shapes=tuple(_shape(text) for text in shape or []),
        check=check,
        processes=processes,
    )
    errors = Console(stderr=True, highlight=False)
    result = run(url, plan, model=model, data=data, key=key, show=lambda line: errors.print(line, style="dim"))
    show(result, Console(highlight=False))
    if json_out is not None:
        import json

        figures = json.dumps(result.to_json(), indent=2) + "\n"
        outputs.write(json_out, lambda: json_out.write_text(figures))
    if chart is not None:
        from ox.bench.chart import draw

        draw(result, chart)
    if not result.good:
        raise typer.Exit(1)


def _numbers(option: str, text: str) -> tuple[float, ...]:
    if not text:
        return ()  # not given
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"{option} is no list of numbers", expected="such as 1,8,32", got=text) from None


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, equals, sizes = text.rpartition("=")
    try:
        if equals:
            return name, tuple(int(size) for size in sizes.replace("x", ",").split(",") if size)
    except ValueError:
        pass
    raise UsageError("--shape is not a name and sizes", expected="such as ids=1,128", got=text)
