"""The table of gRPC methods."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from google.protobuf.json_format import ParseDict

from ox.errors import OxError, ServeError
from ox.serve.access import Guard, credential_of
from ox.serve.config.request_limits import RequestLimits
from ox.serve.protocol.grpc.health import Health
from ox.serve.protocol.grpc.infer_stream import InferStreams
from ox.serve.protocol.grpc.inference import Inference, internal_error
from ox.serve.protocol.grpc.proto import message
from ox.serve.protocol.grpc.reflection import Reflection
from ox.serve.protocol.grpc.request_template import parameter_values
from ox.serve.protocol.grpc.wire import MAX_SMALL_MESSAGE, parse
from ox.serve.service import Service
from ox.serve.transport.grpc.rpc import Method, Rpc, error_status

PATH = "/inference.GRPCInferenceService/"
ALL_MODELS = "*"  # the model name for access control to all models


class ServiceMethod(NamedTuple):
    """A unary method that calls the service.

    Args:
        name: the method; its messages are NAMERequest and NAMEResponse.
        action: the permission that a key needs, or a function of the request that returns it; None for public methods.
        model_of: the model that the permission is about.
        invoke: returns the response as plain values, or an awaitable of it.
    """

    name: str
    action: str | Callable[[Any], str] | None
    model_of: Callable[[Any], str]
    invoke: Callable[[Service, Any], Any]


def _model_name(request: Any) -> str:
    return request.name or ALL_MODELS


def _ready(service: Service, request: Any) -> dict[str, Any]:
    try:
        return {"ready": service.model_ready(request.name, request.version)}
    except ServeError:  # an unknown model is not ready, as in Triton, and no error
        return {"ready": False}


def _settings_action(request: Any) -> str:
    return "manage" if request.settings else "read"


def _trace_setting(service: Service, request: Any) -> Any:
    # a setting without values restores the initial one; no settings only read
    settings = {name: list(setting.value) or None for name, setting in request.settings.items()}
    return service.trace_setting(request.model_name, settings or None)


SERVICE_METHODS = [
    ServiceMethod("ServerLive", None, lambda _: "", lambda service, _: {"live": True}),
    ServiceMethod("ServerReady", None, lambda _: "", lambda service, _: {"ready": service.server_ready()}),
    ServiceMethod("ServerMetadata", "read", lambda _: "", lambda service, _: service.server_metadata()),
    ServiceMethod("ModelReady", "read", _model_name, _ready),
    ServiceMethod("ModelMetadata", "read", _model_name, lambda service, r: service.model_metadata(r.name, r.version)),
    ServiceMethod("ModelStatistics", "read", _model_name, lambda service, r: service.statistics(r.name, r.version)),
    ServiceMethod(
        "ModelConfig", "read", _model_name, lambda service, r: {"config": service.model_config(r.name, r.version)}
    ),
    ServiceMethod(
        "RepositoryIndex", "read", lambda _: ALL_MODELS, lambda service, r: {"models": service.index(r.ready)}
    ),
    ServiceMethod(
        "RepositoryModelLoad",
        "manage",
        lambda r: r.model_name,
        lambda service, r: service.load(r.model_name, parameter_values(r.parameters)),
    ),
    ServiceMethod(
        "RepositoryModelUnload",
        "manage",
        lambda r: r.model_name,
        lambda service, r: service.unload(r.model_name, parameter_values(r.parameters)),
    ),
    ServiceMethod(
        "SystemSharedMemoryStatus",
        "read",
        lambda _: ALL_MODELS,
        lambda service, r: service.shared_memory_status(r.name),
    ),
    ServiceMethod(
        "SystemSharedMemoryRegister",
        "manage",
        lambda _: ALL_MODELS,
        lambda service, r: service.shared_memory_register(r.name, r.key, r.offset, r.byte_size),
    ),
    ServiceMethod(
        "SystemSharedMemoryUnregister",
        "manage",
        lambda _: ALL_MODELS,
        lambda service, r: service.shared_memory_unregister(r.name),
    ),
    ServiceMethod(
        "CudaSharedMemoryStatus",
        "read",
        lambda _: ALL_MODELS,
        lambda service, r: service.cuda_shared_memory_status(r.name),
    ),
    ServiceMethod(
        "CudaSharedMemoryRegister",
        "manage",
        lambda _: ALL_MODELS,
        lambda service, r: service.cuda_shared_memory_register(
            r.name, base64.b64encode(r.raw_handle).decode(), r.device_id, r.byte_size
        ),
    ),
    ServiceMethod(
        "CudaSharedMemoryUnregister",
        "manage",
        lambda _: ALL_MODELS,
        lambda service, r: service.cuda_shared_memory_unregister(r.name),
    ),
    ServiceMethod("TraceSetting", _settings_action, lambda r: r.model_name or ALL_MODELS, _trace_setting),
    ServiceMethod(
        "LogSettings",
        _settings_action,
        lambda _: ALL_MODELS,
        lambda service, r: service.log_settings(parameter_values(r.settings) or None),
    ),
]


class MethodTable:
    """The methods of all services by path."""

    def __init__(self, service: Service, limits: RequestLimits, guard: Guard | None = None) -> None:
        inference = Inference(service, limits, guard)
        self._health = Health(service, guard)
        self._streams = InferStreams(inference, limits.pipeline, limits.buffered)
        unary = [_UnaryMethod(call, service, limits, guard) for call in SERVICE_METHODS]
        methods = [
            Method(f"{PATH}ModelInfer".encode(), False, inference.infer),
            Method(f"{PATH}ModelStreamInfer".encode(), True, self._streams.receive),
            *(Method(f"{PATH}{each.method.name}".encode(), False, each.handle) for each in unary),
            Method(b"/grpc.health.v1.Health/Check", False, self._health.check),
            Method(b"/grpc.health.v1.Health/Watch", True, self._health.watch),
            *Reflection().methods(),
        ]
        self.methods = {method.path: method for method in methods}

    def shed_blocked(self) -> None:
        """See `Streams.shed`."""
        self._streams.shed_blocked()

    def drain(self) -> None:
        """Ends watches and streams. The service reports already that it is not ready."""
        self._health.refresh()
        self._streams.drain()


class _UnaryMethod:
    """Handles one unary method."""

    def __init__(self, method: ServiceMethod, service: Service, limits: RequestLimits, guard: Guard | None) -> None:
        self.method, self._service, self._guard = method, service, guard
        # only model files are large
        self._max_bytes = limits.body if method.name == "RepositoryModelLoad" else MAX_SMALL_MESSAGE
        self._request, self._response = (message(f"inference.{method.name}{end}") for end in ("Request", "Response"))
        self._tasks: set[asyncio.Future[Any]] = set()  # the event loop keeps only weak references

    def handle(self, body: bytes, rpc: Rpc) -> None:
        try:
            answer = self._invoke(body, rpc)
            if isinstance(answer, dict):
                self._reply(answer, rpc)
            else:
                task = asyncio.ensure_future(self._reply_later(answer, rpc))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except OxError as error:
            rpc.fail(*error_status(error))
        except Exception:
            rpc.fail(*internal_error())

    def _invoke(self, body: bytes, rpc: Rpc) -> Any:
        call = self.method
        request = parse(self._request, body, self._max_bytes)
        if self._guard is not None and call.action is not None:
            action = call.action if isinstance(call.action, str) else call.action(request)
            self._guard.check(credential_of(rpc.metadata), action, call.model_of(request), rpc.peer)
        return call.invoke(self._service, request)

    async def _reply_later(self, answer: Awaitable[dict[str, Any]], rpc: Rpc) -> None:
        try:
            self._reply(await answer, rpc)
        except OxError as error:
            rpc.fail(*error_status(error))
        except Exception:
            rpc.fail(*internal_error())

    def _reply(self, answer: dict[str, Any], rpc: Rpc) -> None:
        # unknown fields: HTTP's metadata has more fields than gRPC's message
        rpc.send(ParseDict(answer, self._response(), ignore_unknown_fields=True).SerializeToString())
        rpc.finish()
