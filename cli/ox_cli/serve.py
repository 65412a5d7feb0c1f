"""`ox serve`: ONNX files behind the Open Inference Protocol V2."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ox_cli.early_stop import early_stop


def serve(
    models: Annotated[
        list[Path],
        typer.Argument(help="ONNX files, each served under its stem, or folders NAME/1/model.onnx", metavar="MODEL..."),
    ],
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 is all of IPv4, :: everything.")] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(help="Port to listen on; 0 takes a free one and says which.", show_default="8000")
    ] = None,
    uds: Annotated[
        Path | None, typer.Option(help="A Unix domain socket to listen on, instead of a port or beside --port.")
    ] = None,
    grpc: Annotated[
        str, typer.Option(help="own (on the same port), grpcio (on a port of its own, extra grpc) or off.")
    ] = "own",
    grpc_port: Annotated[int | None, typer.Option(help="A port for gRPC alone; 0 takes a free one.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda (that or an error) or auto (says what it chose).")] = "auto",
    max_rows: Annotated[int | None, typer.Option(help="Most rows of a batch; without it measured. 0: none.")] = None,
    max_wait_ms: Annotated[float, typer.Option(help="How long a free instance waits for a batch to fill.")] = 0.0,
    deadline_ms: Annotated[float, typer.Option(help="How long a request may take that does not say.")] = 10_000.0,
    instances: Annotated[int | None, typer.Option(help="Threads that run a model; measured, or 1 on a GPU.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of one run; measured.")] = None,
    workers: Annotated[int, typer.Option(help="Processes that share the ports, each with all models.", min=1)] = 1,
    load_timeout_s: Annotated[
        float, typer.Option(help="How long loading and trying a model may take; then it is given up.")
    ] = 120.0,
    max_queue: Annotated[int, typer.Option(help="Most rows that wait; more are refused with 503.")] = 1024,
    tls_cert: Annotated[
        Path | None, typer.Option(help="Certificates (PEM); with --tls-key, TLS on every port.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's private key (PEM).")] = None,
    tls_client_ca: Annotated[Path | None, typer.Option(help="Ask for client certificates of these (PEM).")] = None,
    keys: Annotated[Path | None, typer.Option(help="API keys, made by `ox keys`; without it nobody is asked.")] = None,
    rate: Annotated[float | None, typer.Option(help="Calls a second of one client address; no limit.")] = None,
    manage: Annotated[bool, typer.Option("--manage", help="Let anybody load and unload models.")] = False,
    watch: Annotated[bool, typer.Option(help="Follow the files: new, changed and removed models.")] = True,
    log: Annotated[str | None, typer.Option(help="Write a log to standard error, as json or text.")] = None,
    log_level: Annotated[str, typer.Option(help="Its lowest level: debug, info, warning, error or off.")] = "info",
    access_log: Annotated[bool, typer.Option("--access-log", help="A line of it for each request.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="OpenTelemetry spans, as the OTEL_* variables say.")] = False,
    json_nan: Annotated[
        bool, typer.Option("--json-nan", help="Let JSON hold NaN, Infinity and -Infinity, both ways.")
    ] = False,
    max_body_mib: Annotated[int, typer.Option(help="Largest body of a request, in MiB.", min=1, max=2047)] = 16,
    max_dim: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=SIZE: the most that a dimension which varies may be, such as tokens=512; of all models."
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=VALUE for each limit of what clients may do, such as reply=64MiB, rows=8192, idle_s=5min: "
            "url, header_bytes, header_count, body, json, reply, buffered, unread, states, connections, pipeline, "
            "streams, rows, memory, strings, regions, request_s, timeout_s, idle_s, write_s, linger_s, poll_s, drain_s."
        ),
    ] = None,
) -> None:
    """Serve ONNX files over HTTP and gRPC (Open Inference Protocol V2) until Ctrl-C, then drain."""
    with early_stop():
        from ox.serve import Options
        from ox.serve import serve as run
        from ox.serve.limits import parse_dims, parse_limits

        def show(line: str) -> None:
            typer.echo(line)

        run(
            models,
            host=host,
            port=8000 if port is None and uds is None else port,
            uds=uds,
            grpc=grpc,
            grpc_port=grpc_port,
            workers=workers,
            tls_cert=tls_cert,
            tls_key=tls_key,
            tls_client_ca=tls_client_ca,
            keys=keys,
            rate=rate,
            manage=manage,
            watch=watch,
            log=log,
            log_level=log_level,
            access_log=access_log,
            trace=trace,
            json_nan=json_nan,
            options=Options(
                device,
                max_rows,
                max_wait_ms,
                deadline_ms,
                instances,
                threads,
                max_queue,
                max_dims=parse_dims(max_dim or ()),
                load_timeout_s=load_timeout_s,
            ),
            limits=parse_limits(limit or (), body=max_body_mib << 20),
            show=show,
        )
