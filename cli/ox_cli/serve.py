"""`ox serve`: a server for ONNX files (Open Inference Protocol V2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ox_cli.early_stop import early_stop


def serve(
    models: Annotated[
        list[str],
        typer.Argument(
            help="ONNX files (model name: the file name without .onnx), folders with NAME/1/model.onnx, or addresses "
            "of either: s3://, gs://, hf://, mlflow:.",
            metavar="MODEL...",
        ),
    ],
    engine: Annotated[
        str, typer.Option(help="own: this process; ray: replicas on a Ray cluster (needs the extra ray).")
    ] = "own",
    ray: Annotated[
        str | None,
        typer.Option(
            help="With --engine ray: the address of the cluster, or auto.", metavar="ADDRESS", show_default="a new one"
        ),
    ] = None,
    replicas: Annotated[
        str | None,
        typer.Option(
            help="With --engine ray: N replicas, or MIN:MAX, by the length of the queues.",
            metavar="N|MIN:MAX",
            show_default="1",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="Name of the only model. The models of a folder with several keep their names.",
            show_default="its file or folder",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0: all IPv4 addresses, :: also IPv6.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(help="Port to listen on; 0: a free port, which is printed.", show_default="8000")
    ] = None,
    uds: Annotated[
        Path | None,
        typer.Option(help="Path of a Unix domain socket to listen on. Without --port, no TCP port is opened."),
    ] = None,
    grpc: Annotated[
        str,
        typer.Option(help="gRPC server: own (on the HTTP port), grpcio (separate port, needs the extra grpc) or off."),
    ] = "own",
    grpc_port: Annotated[int | None, typer.Option(help="Separate port for gRPC; 0: a free port.")] = None,
    device: Annotated[
        str, typer.Option(help="cpu, cuda (an error if it does not work), cuda:1, cuda:0,cuda:1, tensorrt or auto.")
    ] = "auto",
    max_rows: Annotated[
        int | None, typer.Option(help="Largest batch size, in samples; 0: no batching.", show_default="measured")
    ] = None,
    max_wait_ms: Annotated[
        float, typer.Option(help="Milliseconds that a free instance waits for a fuller batch.")
    ] = 0.0,
    deadline_ms: Annotated[
        float, typer.Option(help="Default deadline in milliseconds for requests that set none.")
    ] = 10_000.0,
    instances: Annotated[
        int | None,
        typer.Option(help="Concurrent runs of a model, one thread each.", show_default="measured; 1 on a GPU"),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="ONNX Runtime threads for one run.", show_default="measured")
    ] = None,
    workers: Annotated[int, typer.Option(help="Server processes on the same port; each loads all models.", min=1)] = 1,
    load_timeout_s: Annotated[
        float, typer.Option(help="Time limit in seconds for loading and checking a model.")
    ] = 120.0,
    max_queue: Annotated[int, typer.Option(help="Largest queue of a model, in samples; more get status 503.")] = 1024,
    tls_cert: Annotated[
        Path | None, typer.Option(help="TLS certificate chain (PEM); needs --tls-key. Applies to all ports.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Private key of the certificate (PEM).")] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(help="Require client certificates signed by these CAs (PEM).")
    ] = None,
    keys: Annotated[
        Path | None, typer.Option(help="File of API keys, see `ox keys`; without it no key is needed.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Requests per second and client address.", show_default="no limit")
    ] = None,
    manage: Annotated[
        bool, typer.Option("--manage", help="Allow management calls, such as load and unload, without a key.")
    ] = False,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            help="Origin of web pages that may use the server (CORS), such as https://example.org; * for all. Can be "
            "repeated.",
            metavar="ORIGIN",
            show_default="none",
        ),
    ] = None,
    root_path: Annotated[
        str,
        typer.Option(help="Path under which a proxy publishes the server, such as /models.", metavar="PATH"),
    ] = "",
    forwarded_allow_ips: Annotated[
        list[str] | None,
        typer.Option(
            help="Addresses and networks of reverse proxies, with commas, whose X-Forwarded-For and Forwarded count; "
            "unix: those at the Unix domain socket, *: all clients. Can be repeated.",
            metavar="ADDRESSES",
            show_default="none",
        ),
    ] = None,
    proxy_protocol: Annotated[
        bool,
        typer.Option("--proxy-protocol", help="Require a PROXY header (version 1 or 2) at the begin of connections."),
    ] = False,
    watch: Annotated[
        bool, typer.Option(help="Watch the files; reload models that are added, changed or removed.")
    ] = True,
    log: Annotated[
        str | None, typer.Option(help="Write a log to stderr; format: json or text.", show_default="off")
    ] = None,
    log_level: Annotated[str, typer.Option(help="Log level: debug, info, warning, error or off.")] = "info",
    access_log: Annotated[bool, typer.Option("--access-log", help="Log one line per request.")] = False,
    trace: Annotated[
        bool, typer.Option("--trace", help="Send OpenTelemetry traces; configured by the OTEL_* variables.")
    ] = False,
    json_nan: Annotated[
        bool, typer.Option("--json-nan", help="Allow NaN, Infinity and -Infinity in JSON requests and responses.")
    ] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Refuse requests for texts with unknown parameters, instead of ignoring these."),
    ] = False,
    max_body_mib: Annotated[int, typer.Option(help="Largest request body, in MiB.", min=1, max=2047)] = 16,
    cuda: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=VALUE: an option of ONNX Runtime's CUDA provider, for models on a GPU, such as "
            "gpu_mem_limit=4GiB; docs/gpu.md lists them."
        ),
    ] = None,
    max_dim: Annotated[
        list[str] | None,
        typer.Option(help="NAME=SIZE: largest size of a dynamic dimension, for all models, such as tokens=512."),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=VALUE: a limit on requests and clients, such as reply=64MiB, rows=8192, idle_s=5min. Names: "
            "url, header_bytes, header_count, body, json, reply, buffered, unread, states, connections, pipeline, "
            "streams, rows, memory, gpu_memory, strings, regions, responses, responses_s, request_s, timeout_s, "
            "idle_s, write_s, linger_s, poll_s, drain_s."
        ),
    ] = None,
) -> None:
    """Serve ONNX files over HTTP and gRPC (Open Inference Protocol V2).

    Ctrl-C or SIGTERM stops the server after the accepted requests are answered.
    """
    with early_stop(quietly=log is not None), _output(log, log_level) as show:
        from ox.serve import ModelConfig
        from ox.serve import serve as run
        from ox.serve.config.cuda_options import parse_cuda
        from ox.serve.config.request_limits import parse_dims, parse_limits

        shared: dict[str, Any] = {
            "name": name,
            "host": host,
            "keys": keys,
            "manage": manage,
            "allow_origin": allow_origin or (),
            "root_path": root_path,
            "forwarded_allow_ips": forwarded_allow_ips or (),
            "watch": watch,
            "log": log,
            "log_level": log_level,
            "access_log": access_log,
            "trace": trace,
            "json_nan": json_nan,
            "strict": strict,
            "options": ModelConfig(
                device,
                max_rows,
                max_wait_ms,
                deadline_ms,
                instances,
                threads,
                max_queue,
                max_dims=parse_dims(max_dim or ()),
                load_timeout_s=load_timeout_s,
                cuda=parse_cuda(cuda or ()),
            ),
            "limits": parse_limits(limit or (), body=max_body_mib << 20),
            "show": show,
        }
        own: dict[str, Any] = {
            "uds": uds,
            "tls_cert": tls_cert,
            "tls_key": tls_key,
            "tls_client_ca": tls_client_ca,
            "rate": rate,
        }
        if engine == "ray":
            refused = {"workers": workers if workers > 1 else None, "proxy_protocol": proxy_protocol or None}
            _refuse("--engine ray", own | refused)
            _serve_on_ray(models, ray, replicas, port, threads, shared | {"grpc_port": grpc_port})
        elif engine == "own":
            _refuse("--engine own", {"ray": ray, "replicas": replicas})
            port = 8000 if port is None and uds is None else port
            own |= {"grpc": grpc, "grpc_port": grpc_port, "workers": workers, "proxy_protocol": proxy_protocol}
            run(models, port=port, **own, **shared)
        else:
            raise _usage_error("there is no such engine", expected="own or ray", got=engine)


@contextmanager
def _output(log: str | None, level: str) -> Iterator[Callable[[str], None]]:
    """What shows a line to the user. With a log, the lines and the error that ends the command are lines of the log."""
    if log is None:
        yield typer.echo
        return
    from ox.serve.telemetry.logged_output import LoggedOutput
    from ox_cli.errors import to_ox_error

    output = LoggedOutput(log, level)
    try:
        yield output.show
    except Exception as error:
        raise typer.Exit(output.fail(to_ox_error(error) or error)) from error
    finally:
        output.close()


def _usage_error(what: str, **more: Any) -> Exception:
    from ox_cli.errors import UsageError  # which imports NumPy: a signal before that is a stop, too

    return UsageError(what, **more)


def _refuse(engine: str, options: dict[str, Any]) -> None:
    given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]
    if given:
        raise _usage_error(f"{engine} does not take {', '.join(given)}")


def _serve_on_ray(
    models: list[str], address: str | None, replicas: str | None, port: int | None, threads: int | None,
    shared: dict[str, Any],
) -> None:  # fmt: skip
    from ox.ray.serve_run import serve as run

    low, colon, high = (replicas or "1").partition(":")
    numbers = [int(part) if part.isascii() and part.isdigit() else 0 for part in (low, *([high] if colon else []))]
    if not 1 <= numbers[0] <= numbers[-1]:
        raise _usage_error("--replicas is a number or a range", expected="4, or 1:8", got=str(replicas))
    run(
        models,
        address or "local",
        port=8000 if port is None else port,
        replicas=(numbers[0], numbers[1]) if colon else numbers[0],
        threads=threads or 1,
        **{name: value for name, value in shared.items() if value is not None},
    )
