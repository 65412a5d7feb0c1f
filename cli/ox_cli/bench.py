"""`ox bench`: a load generator for servers of the Open Inference Protocol V2, and of OpenAI's completions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ox_cli import outputs
from ox_cli.errors import UsageError


def bench(
    url: Annotated[
        str,
        typer.Argument(
            help="The server: http://, https://, grpc:// or grpcs:// with host and port; or unix:PATH, grpc+unix:PATH."
        ),
    ],
    model: Annotated[str | None, typer.Option(help="Name of the model.", show_default="the server's first")] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Inputs: a request (.json), or arrays by input name (.npz); with --text: a prompt per line.",
            show_default="random",
        ),
    ] = None,
    sequence: Annotated[
        int, typer.Option(help="Requests of a sequence, each with its id, start and end.", show_default="no sequences")
    ] = 0,
    text: Annotated[bool, typer.Option("--text", help="Have text generated: OpenAI's completions, streamed.")] = False,
    prompt_words: Annotated[int, typer.Option(help="With --text: words of a random prompt.")] = 128,
    max_tokens: Annotated[int, typer.Option(help="With --text: tokens of each text.")] = 64,
    rows: Annotated[int, typer.Option(help="Batch size of a request, where the model's is dynamic.")] = 1,
    shape: Annotated[
        list[str] | None, typer.Option(help="NAME=SIZES: full shape of an input, such as ids=1,128.")
    ] = None,
    binary: Annotated[
        bool, typer.Option("--binary/--no-binary", help="Send tensors as bytes, or as JSON numbers.")
    ] = True,
    concurrency: Annotated[
        str,
        typer.Option(
            help="Closed loop: concurrent clients, one step per number. With --rate: connections.",
            show_default="1,8,32; with --rate 128",
        ),
    ] = "",
    rate: Annotated[str, typer.Option(help="Open loop: requests per second, one step per number.")] = "",
    arrivals: Annotated[str, typer.Option(help="Arrival times with --rate: poisson or constant.")] = "poisson",
    seconds: Annotated[float, typer.Option(help="Measured seconds per step.")] = 5.0,
    warmup: Annotated[float, typer.Option(help="Warm-up seconds per step; not counted.")] = 1.0,
    timeout: Annotated[
        float | None,
        typer.Option(help="Seconds after which a request counts as failed.", show_default="10; with --text 120"),
    ] = None,
    processes: Annotated[int, typer.Option(help="Processes of the load generator.")] = 1,
    check: Annotated[
        bool, typer.Option("--check", help="Compare the values of all responses with the first one.")
    ] = False,
    key: Annotated[str | None, typer.Option(envvar="OX_API_KEY", help="API key or bearer token.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False,
    json_out: Annotated[Path | None, typer.Option(help="Write the results to this JSON file.")] = None,
    chart: Annotated[Path | None, typer.Option(help="Write a latency chart: .png, .svg or .pdf.")] = None,
) -> None:
    """Load-test a V2 server over HTTP or gRPC: throughput, latency percentiles and errors; with --text a server of
    OpenAI's completions: tokens per second, time to the first token and between tokens.

    The exit code is 1 if there was no correct response or a wrong one. Refusals such as 503 are only counted.
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
        timeout=timeout if timeout is not None else 120.0 if text else 10.0,
        sequence=sequence,
        text=text,
        prompt_words=prompt_words,
        max_tokens=max_tokens,
        binary=binary,
        rows=rows,
        shapes=tuple(_shape(text) for text in shape or []),
        check=check,
        processes=processes,
    )
    errors = Console(stderr=True, highlight=False)
    result = run(url, plan, model=model, data=data, key=key, show=lambda line: errors.print(line, style="dim"))
    figures = json.dumps(result.to_json(), indent=2)
    if as_json:
        typer.echo(figures)
    else:
        show(result, Console(highlight=False))
    if json_out is not None:
        outputs.write(json_out, lambda: json_out.write_text(figures + "\n"))
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
        raise UsageError(f"{option} is not a list of numbers", expected="such as 1,8,32", got=text) from None


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, equals, sizes = text.rpartition("=")
    try:
        if equals:
            return name, tuple(int(size) for size in sizes.replace("x", ",").split(",") if size)
    except ValueError:
        pass
    raise UsageError("--shape must be a name and sizes", expected="such as ids=1,128", got=text)
