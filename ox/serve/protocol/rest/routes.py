"""The table of all HTTP routes: the router, admission and the OpenAPI document read it. `text_routes` has those of the
APIs for language models.

Triton's JSON differs from its gRPC messages in places; those routes convert the result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any
from urllib.parse import quote as percent_encoded

import orjson

from ox._version import __version__
from ox.errors import ServeError
from ox.serve.access.permission import Permission
from ox.serve.protocol.rest.body import read_json
from ox.serve.protocol.rest.generate import REPLY, REQUEST, generate
from ox.serve.protocol.rest.openapi import openapi as document_of
from ox.serve.protocol.rest.page import POLICY, page
from ox.serve.protocol.rest.predict import REPLY as V1_REPLY
from ox.serve.protocol.rest.predict import REQUEST as V1
from ox.serve.protocol.rest.predict import predict
from ox.serve.protocol.rest.routing import (
    ANY,
    READ,
    Context,
    Fields,
    Handler,
    HandlerResult,
    PathParameters,
    Reply,
    Route,
    Routes,
)
from ox.serve.protocol.rest.text_routes import TEXT_ROUTES, not_found
from ox.serve.protocol.v2.document import flag, parameters_of, quote
from ox.serve.service import Service
from ox.serve.transport.http import Exchange
from ox.serve.transport.http.encoding import compress
from ox.serve.web import site

Body = dict[str, Any]
HTML = b"text/html; charset=utf-8"
INFER, MANAGE, METRICS = Permission("infer"), Permission("manage"), Permission("metrics")

# ---- handlers


def service_call(
    invoke: Callable[[Service, PathParameters, Body], Any], to_json: Callable[[Any], Any] | None = lambda answer: answer
) -> Handler:
    """A handler that calls the service.

    Args:
        invoke: returns the result or an awaitable of it.
        to_json: converts the result to JSON values; None for an empty response.
    """

    def reply(answer: Any) -> Reply:
        # Never compressed: Triton's asyncio client accepts gzip, but decompresses it for inference only.
        return Reply() if to_json is None else Reply(orjson.dumps(to_json(answer)))

    async def reply_later(answer: Awaitable[Any]) -> Reply:
        return reply(await answer)

    def handle(context: Context, exchange: Exchange, names: PathParameters) -> HandlerResult:
        body = read_json(exchange, context.limits) if exchange.method == b"POST" else {}
        answer = invoke(context.service, names, body)
        return reply_later(answer) if isawaitable(answer) else reply(answer)

    return handle


def _readiness(invoke: Callable[[Service, PathParameters], Body]) -> Handler:
    """A handler that reports readiness by status and by body: some clients read only one of them."""

    def handle(context: Context, exchange: Exchange, names: PathParameters) -> Reply:
        answer = invoke(context.service, names)
        return Reply(orjson.dumps(answer), status=200 if answer["ready"] else 400)

    return handle


def _health(context: Context, exchange: Exchange, names: PathParameters) -> Reply:
    """Readiness by status alone, as vLLM, Text Embeddings Inference and SageMaker's containers report it."""
    if not context.service.server_ready():
        raise ServeError("the server is not ready", status=503, hint="again in a moment")
    return Reply()


def _infer(context: Context, exchange: Exchange, names: PathParameters) -> None:
    context.infer(exchange, *_model(names))


def _document(context: Context, exchange: Exchange) -> Body:
    root_path = exchange.connection.listener_state.root_path.decode()
    return document_of(context.service.repository.models(), context.table, root_path)


def _openapi(context: Context, exchange: Exchange, names: PathParameters) -> Reply:
    return _compressed(exchange, Reply(orjson.dumps(_document(context, exchange))))


def _docs(context: Context, exchange: Exchange, names: PathParameters) -> Reply:
    document = _document(context, exchange)
    return _compressed(exchange, Reply(page(document), HTML, POLICY))


def _compressed(exchange: Exchange, reply: Reply) -> Reply:
    if b"accept-encoding" not in exchange.headers:
        return reply
    body, line = compress(reply.body, exchange.headers[b"accept-encoding"])
    return reply._replace(body=body, headers=reply.headers + line)


# ---- fields of requests and responses


def _model(names: PathParameters) -> tuple[str, str]:
    return names.get("model", ""), names.get("version", "")


def _region_list(answer: dict[str, Any]) -> list[Any]:
    return list(answer["regions"].values())


def _logs(answer: dict[str, Any]) -> dict[str, Any]:
    """Log settings as plain values, without their types."""
    return {name: next(iter(value.values())) for name, value in answer["settings"].items()}


def _traces(answer: dict[str, Any]) -> dict[str, Any]:
    """Trace settings as strings; the level is a list."""
    values = {name: value["value"] for name, value in answer["settings"].items()}
    return {name: value if name == "trace_level" else value[0] for name, value in values.items()}


def _trace_changes(body: Body) -> dict[str, list[str] | None]:
    """New trace settings as lists of strings; None restores the initial value."""
    changes: dict[str, list[str] | None] = {}
    for name, value in body.items():
        listed = value if isinstance(value, list) else [value]
        if value is not None and not all(isinstance(word, str | int) and not isinstance(word, bool) for word in listed):
            raise ServeError(f"the trace setting {quote(name)} is wrong", expected="text", got=quote(value))
        changes[name] = None if value is None else [str(word) for word in listed]
    return changes


def _field(body: Body, name: str, default: Any = None) -> Any:
    value = body.get(name, default)
    if value is None:
        raise ServeError(f"the request has no '{name}'", expected='{"key": "/name", "offset": 0, "byte_size": 1024}')
    return value


def _raw_handle(body: Body) -> Any:
    handle = body.get("raw_handle")
    return handle.get("b64") if isinstance(handle, dict) else handle


# ---- JSON schemas of fields

ANYTHING: Fields = {}
LIVE: Fields = {"live": {"type": "boolean"}}
READY: Fields = {"ready": {"type": "boolean"}}
MODEL_READY: Fields = {"name": {"type": "string"}, **READY}
LOAD: Fields = {"parameters": {"type": "object", "description": "config: JSON; file:VERSION/NAME: base64"}}
UNLOAD: Fields = {"parameters": {"type": "object", "properties": {"unload_dependents": {"type": "boolean"}}}}
REGISTER: Fields = {
    "key": {"type": "string"},
    "offset": {"type": "integer", "minimum": 0},
    "byte_size": {"type": "integer", "minimum": 1},
}
REGISTER_CUDA: Fields = {
    "raw_handle": {"type": "object", "properties": {"b64": {"type": "string", "description": "cudaIpcMemHandle_t"}}},
    "device_id": {"type": "integer", "minimum": 0},
    "byte_size": {"type": "integer", "minimum": 1},
}
TRACES: Fields = {"trace_level": {"type": "array", "items": {"enum": ["OFF", "TIMESTAMPS"]}}}
LOGS: Fields = {"log_info": {"type": "boolean"}, "log_verbose_level": {"type": "integer", "minimum": 0}}

# ---- the table

SHM, CUDA = "/v2/systemsharedmemory", "/v2/cudasharedmemory"
MODEL_PATHS = ("/v2/models/{model}", "/v2/models/{model}/versions/{version}")
INFER_PATH, VERSION_INFER_PATH = (f"{path}/infer" for path in MODEL_PATHS)


def get(
    path: str, about: str, handler: Handler, permission: Permission | None = READ, reply: Fields | None = ANYTHING
) -> Route:
    """A GET route."""
    return Route("GET", path, permission, handler, about, reply=reply)


def post(path: str, about: str, handler: Handler, request: Fields | None = None, reply: Fields | None = None) -> Route:
    """A POST route for a management call; most have an empty response."""
    return Route("POST", path, MANAGE, handler, about, request, reply)


TABLE = [
    Route("GET", "/", None, site.index, undocumented="a page"),
    Route(ANY, "/favicon.ico", None, not_found, undocumented="browsers ask for it; there is none"),
    Route("GET", "/docs", READ, _docs, undocumented="the page of the document"),
    Route("GET", "/openapi.json", READ, _openapi, undocumented="the document itself"),
    Route("GET", "/metrics", METRICS, site.metrics, undocumented="in the format of Prometheus"),
    Route("GET", "/v2/ox/figures", READ, site.figures, undocumented="for the page"),
    Route(
        "GET", "/v2/ox/models/{model}/versions/{version}/random", READ, site.random_sample, undocumented="for the page"
    ),
    Route(
        "GET",
        "/v2/ox/models/{model}/versions/{version}/samples/{number}",
        READ,
        site.golden_sample,
        undocumented="for the page",
    ),
    *(Route("POST", path, INFER, _infer, "Runs a model", each_model=True) for path in (INFER_PATH, VERSION_INFER_PATH)),
    *(
        Route(
            "POST",
            f"{path}/{name}",
            INFER,
            generate(streamed),
            about,
            REQUEST,
            REPLY,
            events=streamed,
            required=("text_input",),
            optional=("id",),
            lenient=True,
        )
        for path in MODEL_PATHS
        for name, streamed, about in (
            ("generate", False, "Continues a text"),
            ("generate_stream", True, "The same as server-sent events"),
        )
    ),
    get(
        "/v2",
        "The server's name, version and extensions",
        service_call(lambda s, _, __: s.server_metadata()),
        Permission("read", ""),
    ),
    get("/v2/health/live", "200 while the server responds", service_call(lambda *_: {"live": True}), None, LIVE),
    get(
        "/v2/health/ready",
        "200 while the server accepts requests, else 400",
        _readiness(lambda s, _: {"ready": s.server_ready()}),
        None,
        READY,
    ),
    *(
        get(path, "200 while the server accepts requests, else 503", _health, None, None)
        for path in ("/health", "/ping")
    ),
    get(
        "/version",
        "The server's version",
        service_call(lambda *_: {"version": __version__}),
        Permission("read", ""),
        {"version": {"type": "string"}},
    ),
    *(
        route
        for path in MODEL_PATHS
        for route in (
            get(path, "A model's inputs and outputs", service_call(lambda s, n, _: s.model_metadata(*_model(n)))),
            get(
                f"{path}/ready",
                "200 while the model accepts requests, else 400",
                _readiness(lambda s, n: {"name": n["model"], "ready": s.model_ready(*_model(n))}),
                reply=MODEL_READY,
            ),
            get(f"{path}/config", "The settings of a model", service_call(lambda s, n, _: s.model_config(*_model(n)))),
            get(f"{path}/stats", "Statistics of a model", service_call(lambda s, n, _: s.statistics(*_model(n)))),
        )
    ),
    get("/v2/models/stats", "Statistics of all models", service_call(lambda s, _, __: s.statistics())),
    Route(
        "POST",
        "/v2/repository/index",
        READ,
        service_call(lambda s, _, body: s.index(flag(body, "ready"))),
        "All known models and their states",
        READY,
        ANYTHING,
    ),
    post(
        "/v2/repository/models/{model}/load",
        "Loads or reloads a model",
        service_call(lambda s, n, body: s.load(n["model"], parameters_of(body)), None),
        LOAD,
    ),
    post(
        "/v2/repository/models/{model}/unload",
        "Stops serving a model",
        service_call(lambda s, n, body: s.unload(n["model"], parameters_of(body)), None),
        UNLOAD,
    ),
    get(
        f"{SHM}/status",
        "All shared memory regions",
        service_call(lambda s, _, __: s.shared_memory_status(), _region_list),
    ),
    get(
        f"{SHM}/region/{{region}}/status",
        "One shared memory region",
        service_call(lambda s, n, _: s.shared_memory_status(n["region"]), _region_list),
    ),
    post(
        f"{SHM}/region/{{region}}/register",
        "Makes shared memory known to the server",
        service_call(
            lambda s, n, body: s.shared_memory_register(
                n["region"], _field(body, "key"), _field(body, "offset", 0), _field(body, "byte_size")
            ),
            None,
        ),
        REGISTER,
    ),
    post(
        f"{SHM}/region/{{region}}/unregister",
        "Forgets a shared memory region",
        service_call(lambda s, n, _: s.shared_memory_unregister(n["region"]), None),
    ),
    post(f"{SHM}/unregister", "Forgets all of them", service_call(lambda s, _, __: s.shared_memory_unregister(), None)),
    get(
        f"{CUDA}/status",
        "All regions of CUDA shared memory",
        service_call(lambda s, _, __: s.cuda_shared_memory_status(), _region_list),
    ),
    get(
        f"{CUDA}/region/{{region}}/status",
        "One region of CUDA shared memory",
        service_call(lambda s, n, _: s.cuda_shared_memory_status(n["region"]), _region_list),
    ),
    post(
        f"{CUDA}/region/{{region}}/register",
        "Makes memory of a GPU known to the server",
        service_call(
            lambda s, n, body: s.cuda_shared_memory_register(
                n["region"], _raw_handle(body), body.get("device_id", 0), body.get("byte_size", 0)
            ),
            None,
        ),
        REGISTER_CUDA,
    ),
    post(
        f"{CUDA}/region/{{region}}/unregister",
        "Forgets a region of CUDA shared memory",
        service_call(lambda s, n, _: s.cuda_shared_memory_unregister(n["region"]), None),
    ),
    post(
        f"{CUDA}/unregister",
        "Forgets all of them",
        service_call(lambda s, _, __: s.cuda_shared_memory_unregister(), None),
    ),
    *(
        route
        for path in ("/v2/trace/setting", "/v2/models/{model}/trace/setting")
        for route in (
            get(path, "What is traced", service_call(lambda s, n, _: s.trace_setting(n.get("model", "")), _traces)),
            post(
                path,
                "Changes what is traced",
                service_call(lambda s, n, body: s.trace_setting(n.get("model", ""), _trace_changes(body)), _traces),
                TRACES,
                ANYTHING,
            ),
        )
    ),
    get("/v2/logging", "What is logged", service_call(lambda s, _, __: s.log_settings(), _logs)),
    post(
        "/v2/logging",
        "Changes what is logged",
        service_call(lambda s, _, body: s.log_settings(body), _logs),
        LOGS,
        ANYTHING,
    ),
    Route("POST", "/v1/models/{model}:predict", INFER, predict, "Runs a model, in KServe's V1 protocol", V1, V1_REPLY),
    *TEXT_ROUTES,
]
ROUTES = Routes(TABLE)


def infer_target(name: str, version: str) -> bytes:
    """The usual target of a model's inference requests; `version` "" for the newest."""
    path = VERSION_INFER_PATH if version else INFER_PATH
    return path.format(model=percent_encoded(name), version=version).encode()
