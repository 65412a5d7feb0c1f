"""The calls of the protocol over HTTP that are not inference: which path asks what of the service.

Triton's JSON is not that of its gRPC messages everywhere; where it differs, a route says how the answer is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ox.errors import ServeError
from ox.serve.service import Service
from ox.serve.v2.document import flag, parameters_of, quote

Body = dict[str, Any]
Names = dict[str, str]
Branch = dict[str, Any]
NAME = "{"  # what a part of a path begins with that stands for any name
METHODS = ""  # where a branch of the tree keeps what the path up to it does


class Route(NamedTuple):
    """One call.

    Args:
        method: GET or POST.
        path: with {names} for what varies.
        about: what the call does, for the documents.
        ask: the answer, or something to await that gives it.
        form: turns it into what is written as JSON; None for answers that are empty.
    """

    method: str
    path: str
    about: str
    ask: Callable[[Service, Names, Body], Any]
    form: Callable[[Any], Any] | None = lambda answer: answer


def _model(names: Names) -> tuple[str, str]:
    return names.get("model", ""), names.get("version", "")


def _readiness(ready: bool, **known: str) -> dict[str, Any]:
    """Told by the status as well as in words: some clients look at the one, some at the other."""
    answer = {**known, "ready": ready}
    if not ready:
        raise NotReady(answer)
    return answer


class NotReady(Exception):
    """The answer is 400 with this document, which is no error's."""

    def __init__(self, document: dict[str, Any]) -> None:
        super().__init__(document)
        self.document = document


def _regions(answer: dict[str, Any]) -> list[Any]:
    return list(answer["regions"].values())


def _logs(answer: dict[str, Any]) -> dict[str, Any]:
    """A setting is one value of one of three types."""
    return {name: next(iter(value.values())) for name, value in answer["settings"].items()}


def _traces(answer: dict[str, Any]) -> dict[str, Any]:
    """Every setting is one string, but for the level, which is a list."""
    values = {name: value["value"] for name, value in answer["settings"].items()}
    return {name: value if name == "trace_level" else value[0] for name, value in values.items()}


def _changes(body: Body) -> dict[str, list[str] | None]:
    """New settings of traces: lists of strings; None for those that are to be as they were at the start."""
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


def _handle(body: Body) -> Any:
    handle = body.get("raw_handle")
    return handle.get("b64") if isinstance(handle, dict) else handle


SHM, CUDA = "/v2/systemsharedmemory", "/v2/cudasharedmemory"
TABLE = [
    Route("GET", "/v2", "The server's name, version and extensions", lambda s, _, __: s.server_metadata()),
    Route("GET", "/v2/health/live", "200 while the server answers", lambda *_: {"live": True}),
    Route(
        "GET",
        "/v2/health/ready",
        "200 while the server takes requests, else 400",
        lambda s, _, __: _readiness(s.server_ready()),
    ),
    *(
        route
        for model in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}")
        for route in (
            Route("GET", model, "A model's inputs and outputs", lambda s, n, _: s.model_metadata(*_model(n))),
            Route(
                "GET",
                f"{model}/ready",
                "200 while a model takes requests, else 400",
                lambda s, n, _: _readiness(s.model_ready(*_model(n)), name=n["model"]),
            ),
            Route("GET", f"{model}/config", "How a model is run", lambda s, n, _: s.model_config(*_model(n))),
            Route("GET", f"{model}/stats", "What a model has done so far", lambda s, n, _: s.statistics(*_model(n))),
        )
    ),
    Route("GET", "/v2/models/stats", "What all models have done so far", lambda s, _, __: s.statistics()),
    Route(
        "POST",
        "/v2/repository/index",
        "All known models and their states",
        lambda s, _, body: s.index(flag(body, "ready")),
    ),
    Route(
        "POST",
        "/v2/repository/models/{model}/load",
        "Loads or reloads a model",
        lambda s, n, body: s.load(n["model"], parameters_of(body)),
        None,
    ),
    Route(
        "POST",
        "/v2/repository/models/{model}/unload",
        "Stops serving a model",
        lambda s, n, body: s.unload(n["model"], parameters_of(body)),
        None,
    ),
    Route("GET", f"{SHM}/status", "All shared memory regions", lambda s, _, __: s.shared_memory_status(), _regions),
    Route(
        "GET",
        f"{SHM}/region/{{region}}/status",
        "One shared memory region",
        lambda s, n, _: s.shared_memory_status(n["region"]),
        _regions,
    ),
    Route(
        "POST",
        f"{SHM}/region/{{region}}/register",
        "Makes shared memory known to the server",
        lambda s, n, body: s.shared_memory_register(
            n["region"], _field(body, "key"), _field(body, "offset", 0), _field(body, "byte_size")
        ),
        None,
    ),
    Route(
        "POST",
        f"{SHM}/region/{{region}}/unregister",
        "Forgets a shared memory region",
        lambda s, n, _: s.shared_memory_unregister(n["region"]),
        None,
    ),
    Route("POST", f"{SHM}/unregister", "Forgets all of them", lambda s, _, __: s.shared_memory_unregister(), None),
    Route(
        "GET", f"{CUDA}/status", "CUDA shared memory: none", lambda s, _, __: s.cuda_shared_memory_status(), _regions
    ),
    Route(
        "GET",
        f"{CUDA}/region/{{region}}/status",
        "One region of CUDA shared memory: there is none",
        lambda s, n, _: s.cuda_shared_memory_status(n["region"]),
        _regions,
    ),
    Route(
        "POST",
        f"{CUDA}/region/{{region}}/register",
        "CUDA shared memory, which this server does not have",
        lambda s, n, body: s.cuda_shared_memory_register(
            n["region"], _handle(body), body.get("device_id", 0), body.get("byte_size", 0)
        ),
        None,
    ),
    Route(
        "POST",
        f"{CUDA}/region/{{region}}/unregister",
        "Forgets a region of CUDA shared memory",
        lambda s, n, _: s.cuda_shared_memory_unregister(n["region"]),
        None,
    ),
    Route(
        "POST", f"{CUDA}/unregister", "Forgets all of them", lambda s, _, __: s.cuda_shared_memory_unregister(), None
    ),
    *(
        route
        for path in ("/v2/trace/setting", "/v2/models/{model}/trace/setting")
        for route in (
            Route("GET", path, "What is traced", lambda s, n, _: s.trace_setting(n.get("model", ""), None), _traces),
            Route(
                "POST",
                path,
                "Changes what is traced",
                lambda s, n, body: s.trace_setting(n.get("model", ""), _changes(body)),
                _traces,
            ),
        )
    ),
    Route("GET", "/v2/logging", "What is logged", lambda s, _, __: s.log_settings(None), _logs),
    Route("POST", "/v2/logging", "Changes what is logged", lambda s, _, body: s.log_settings(body), _logs),
]


class Routes:
    """Finds the calls of a path."""

    def __init__(self, table: list[Route]) -> None:
        self._tree: Branch = {}
        for route in table:
            branch = self._tree
            for part in route.path.strip("/").split("/"):
                branch = branch.setdefault(NAME if part[0] == NAME else part, {})
            branch.setdefault(METHODS, {})[route.method] = route

    def find(self, parts: list[str]) -> tuple[dict[str, Route], list[str]] | None:
        """What the path of these parts does, by method, and the names in it; None if it does nothing."""
        return self._find(self._tree, parts, [])

    def _find(self, branch: Branch, parts: list[str], names: list[str]) -> tuple[dict[str, Route], list[str]] | None:
        if not parts:
            return (branch[METHODS], names) if METHODS in branch else None
        part, *rest = parts
        found = self._find(branch[part], rest, names) if part in branch and part not in (NAME, METHODS) else None
        if found is None and NAME in branch and part:
            found = self._find(branch[NAME], rest, [*names, part])
        return found


def names_of(route: Route, values: list[str]) -> Names:
    """A path's names with what stands for them."""
    parts = [part[1:-1] for part in route.path.split("/") if part.startswith(NAME)]
    return dict(zip(parts, values, strict=True))
