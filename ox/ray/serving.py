"""`ox.ray.deployment`: replicas of Ray Serve, each a server of ox with its batcher and engine."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any

from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy

from ox.devices import machine
from ox.ray.grpc import METHODS, method_of
from ox.serve import ModelConfig, RequestLimits, Server
from ox.serve.protocol.grpc.methods import MethodTable
from ox.serve.transport.http.asgi import AsgiApplication

QUEUE_DEPTH = 8  # waiting requests for which there should be a replica, as in deploy/keda.yaml
METRIC = "ox_queue_depth"
ONGOING = 1024  # requests in a replica at once: ox's own queue bounds them


class Replica:
    """A server of ox in a replica. Ray Serve, or its HAProxy, owns the port; requests come by ASGI."""

    async def __init__(  # type: ignore[misc]  # Ray Serve awaits it
        self,
        models: Sequence[str],
        options: ModelConfig | None,
        limits: RequestLimits,
        threads: int,
        settings: dict[str, Any],
    ) -> None:
        machine.use(threads)
        self.server = Server(models, options=options, limits=limits, host="127.0.0.1", port=0, grpc="off", **settings)
        self.methods = MethodTable(self.server.service, limits, self.server.guard).methods
        await self.server.start()

    def __serve_build_asgi_app__(self) -> AsgiApplication:
        return self.server.asgi()

    def record_autoscaling_stats(self) -> dict[str, float]:
        """What Ray Serve asks of a replica regularly: the requests that wait for an instance of a model."""
        return {METRIC: float(sum(model.depth for model in self.server.models))}

    async def check_health(self) -> None:
        """Raises if a replica should be replaced: Ray Serve asks regularly."""
        if not self.server.service.server_ready():
            raise RuntimeError("the server of ox is not ready")


for _name in METHODS:  # Ray Serve looks for a method with the name of a call
    setattr(Replica, _name, method_of(_name))


def replicas_for(context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
    """A replica for every `QUEUE_DEPTH` waiting requests, as a policy of Ray Serve. The bounds and delays are those of
    the deployment's `AutoscalingConfig`."""
    depths = (context.aggregated_metrics or {}).get(METRIC, {})
    return max(context.capacity_adjusted_min_replicas, ceil(sum(depths.values()) / QUEUE_DEPTH)), {}


def application(args: dict[str, Any]) -> serve.Application:
    """`deployment` for a configuration file of Ray Serve: ``import_path: ox.ray.serving:application``. Its ``args``
    are the arguments; a list of two numbers for `replicas` is a range."""
    if isinstance(args.get("replicas"), list):
        args = {**args, "replicas": tuple(args["replicas"])}
    return deployment(**args)


def deployment(
    model: str | Path | Sequence[str | Path],
    *,
    replicas: int | tuple[int, int] | AutoscalingConfig = 1,
    threads: int = 1,
    options: ModelConfig | None = None,
    limits: RequestLimits | None = None,
    **settings: Any,
) -> serve.Application:
    """An application for `ray.serve.run`: each replica is a server of ox, with the paths of `ox serve`.

        serve.run(ox.ray.deployment("s3://bucket/model.onnx", replicas=(1, 8)))

    Args:
        model: ONNX files, folders of models and addresses, as for `ox.serve.Server`; every node must reach them.
        replicas: their number; or the least and the most: then the queues decide (`replicas_for`), with the delays of
            Ray Serve; or a configuration of Ray Serve.
        threads: CPUs that Ray reserves for a replica, and threads that its models use.
        options, limits, settings: as for `ox.serve.Server`; not host, port, grpc and workers.

    Raises:
        ArgumentError: a setting is out of range. What a replica raises, such as LoadError, is in Ray's error.
    """
    given = [model] if isinstance(model, str | Path) else list(model)
    scaling: dict[str, Any] = {"num_replicas": replicas}
    if isinstance(replicas, tuple):
        policy = AutoscalingPolicy(policy_function=replicas_for)
        replicas = AutoscalingConfig(min_replicas=replicas[0], max_replicas=replicas[1], policy=policy)
    if isinstance(replicas, AutoscalingConfig):
        scaling = {"autoscaling_config": replicas}
    made = serve.deployment(
        name="ox", max_ongoing_requests=ONGOING, ray_actor_options={"num_cpus": threads}, **scaling
    )(serve.ingress()(Replica))
    paths = [str(Path(path).resolve() if Path(path).exists() else path) for path in given]
    return made.bind(paths, options, limits or RequestLimits(), threads, settings)
