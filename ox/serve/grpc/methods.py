"""The table of gRPC calls, from a path to what answers it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from google.protobuf.json_format import ParseDict

from ox.errors import OxError, ServeError
from ox.serve.access import Guard, credential_of
from ox.serve.grpc.health import Health
from ox.serve.grpc.inference import Inference, broken
from ox.serve.grpc.plan import values
from ox.serve.grpc.proto import message
from ox.serve.grpc.reflection import Reflection
from ox.serve.grpc.rpc import Method, Rpc, failure
from ox.serve.grpc.stream import Streams
from ox.serve.grpc.wire import SMALL, parse
from ox.serve.limits import Limits
from ox.serve.service import Service

PATH = "/inference.GRPCInferenceService/"
ALL = "*"  # models, for a guard


class Call(NamedTuple):
    """A call that is answered from a service with one message.

    Args:
        name: also of its messages: NAMERequest, NAMEResponse.
        action: what a key must be good for, or what tells it from a request; None: nothing.
        about: the model that it is about, for a guard.
        ask: the answer as plain values, or something to await that gives it.
    """

    name: str
    action: str | Callable[[Any], str] | None
    about: Callable[[Any], str]
    ask: Callable[[Service, Any], Any]


def _named(request: Any) -> str:
    return request.name or ALL


def _ready(service: Service, request: Any) -> dict[str, Any]:
    try:
        return {"ready": service.model_ready(request.name, request.version)}
    except ServeError:  # what is not there is not ready: no error, as with Triton
        return {"ready": False}


def _action(request: Any) -> str:
    return "manage" if request.settings else "read"


def _trace(service: Service, request: Any) -> Any:
    # a setting without values goes back to what it was; no settings at all only ask
    settings = {name: list(setting.value) or None for name, setting in request.settings.items()}
    return service.trace_setting(request.model_name, settings or None)


CALLS = [
    Call("ServerLive", None, lambda _: "", lambda service, _: {"live": True}),
    Call("ServerReady", None, lambda _: "", lambda service, _: {"ready": service.server_ready()}),
    Call("ServerMetadata", "read", lambda _: "", lambda service, _: service.server_metadata()),
    Call("ModelReady", "read", _named, _ready),
    Call("ModelMetadata", "read", _named, lambda service, r: service.model_metadata(r.name, r.version)),
    Call("ModelStatistics", "read", _named, lambda service, r: service.statistics(r.name, r.version)),
    Call("ModelConfig", "read", _named, lambda service, r: {"config": service.model_config(r.name, r.version)}),
    Call("RepositoryIndex", "read", lambda _: ALL, lambda service, r: {"models": service.index(r.ready)}),
    Call(
        "RepositoryModelLoad",
        "manage",
        lambda r: r.model_name,
        lambda service, r: service.load(r.model_name, values(r.parameters)),
    ),
    Call(
        "RepositoryModelUnload",
        "manage",
        lambda r: r.model_name,
        lambda service, r: service.unload(r.model_name, values(r.parameters)),
    ),
    Call("SystemSharedMemoryStatus", "read", lambda _: ALL, lambda service, r: service.shared_memory_status(r.name)),
    Call(
        "SystemSharedMemoryRegister",
        "manage",
        lambda _: ALL,
        lambda service, r: service.shared_memory_register(r.name, r.key, r.offset, r.byte_size),
    ),
    Call(
        "SystemSharedMemoryUnregister",
        "manage",
        lambda _: ALL,
        lambda service, r: service.shared_memory_unregister(r.name),
    ),
    Call("CudaSharedMemoryStatus", "read", lambda _: ALL, lambda service, r: service.cuda_shared_memory_status(r.name)),
    Call(
        "CudaSharedMemoryRegister",
        "manage",
        lambda _: ALL,
        lambda service, r: service.cuda_shared_memory_register(r.name, r.raw_handle, r.device_id, r.byte_size),
    ),
    Call(
        "CudaSharedMemoryUnregister",
        "manage",
        lambda _: ALL,
        lambda service, r: service.cuda_shared_memory_unregister(r.name),
    ),
    Call("TraceSetting", _action, lambda r: r.model_name or ALL, _trace),
    Call("LogSettings", _action, lambda _: ALL, lambda service, r: service.log_settings(values(r.settings) or None)),
]


class Table:
    """The methods of all services, by their paths."""

    def __init__(self, service: Service, limits: Limits, guard: Guard | None = None) -> None:
        inference = Inference(service, limits, guard)
        self._health = Health(service, guard)
        self._streams = Streams(inference, limits.pipeline)
        unary = [_Unary(call, service, limits, guard) for call in CALLS]
        methods = [
            Method(f"{PATH}ModelInfer".encode(), False, inference.infer),
            Method(f"{PATH}ModelStreamInfer".encode(), True, self._streams.take),
            *(Method(f"{PATH}{each.call.name}".encode(), False, each.take) for each in unary),
            Method(b"/grpc.health.v1.Health/Check", False, self._health.check),
            Method(b"/grpc.health.v1.Health/Watch", True, self._health.watch),
            *Reflection().methods(),
        ]
        self.methods = {method.path: method for method in methods}

    def shed(self) -> None:
        """See `Streams.shed`."""
        self._streams.shed()

    def drain(self) -> None:
        """Ends the calls that would not end by themselves. The service says already that it is not ready."""
        self._health.refresh()
        self._streams.drain()


class _Unary:
    """Answers one call."""

    def __init__(self, call: Call, service: Service, limits: Limits, guard: Guard | None) -> None:
        self.call, self._service, self._guard = call, service, guard
        self._most = limits.body if call.name == "RepositoryModelLoad" else SMALL  # only files may be large
        self._request, self._response = (message(f"inference.{call.name}{end}") for end in ("Request", "Response"))
        self._tasks: set[asyncio.Future[Any]] = set()  # the loop itself would forget them

    def take(self, body: bytes, rpc: Rpc) -> None:
        try:
            answer = self._ask(body, rpc)
            if isinstance(answer, dict):
                self._reply(answer, rpc)
            else:
                task = asyncio.ensure_future(self._later(answer, rpc))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except OxError as error:
            rpc.fail(*failure(error))
        except Exception:
            rpc.fail(*broken())

    def _ask(self, body: bytes, rpc: Rpc) -> Any:
        call = self.call
        request = parse(self._request, body, self._most)
        if self._guard is not None and call.action is not None:
            action = call.action if isinstance(call.action, str) else call.action(request)
            self._guard.check(credential_of(rpc.metadata), action, call.about(request), rpc.peer)
        return call.ask(self._service, request)

    async def _later(self, answer: Awaitable[dict[str, Any]], rpc: Rpc) -> None:
        try:
            self._reply(await answer, rpc)
        except OxError as error:
            rpc.fail(*failure(error))
        except Exception:
            rpc.fail(*broken())

    def _reply(self, answer: dict[str, Any], rpc: Rpc) -> None:
        # unknown fields: HTTP's metadata says more of a tensor than gRPC's message has room for
        rpc.send(ParseDict(answer, self._response(), ignore_unknown_fields=True).SerializeToString())
        rpc.finish()
