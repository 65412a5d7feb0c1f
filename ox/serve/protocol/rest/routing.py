"""A route: method, path, required permission and handler. The tree that finds routes by path.

`ox.serve.protocol.rest.routes` has the table of all routes. The router, admission and the OpenAPI document read it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from ox.errors import OxError
from ox.serve.access.permission import ALL, Permission
from ox.serve.config.request_limits import RequestLimits
from ox.serve.protocol.text.text_service import TextService
from ox.serve.response_memory import Body
from ox.serve.service import Service
from ox.serve.transport.http import JSON, Exchange
from ox.serve.transport.http.listener_state import v2_error_body

ANY = "*"  # the method of a path that returns 404; the table has it for its permission
READ = Permission("read")
PathParameters = dict[str, str]  # the values of the {parameters} in a path
Fields = dict[str, Any]  # JSON schemas of an object's fields by name


class Reply(NamedTuple):
    """A complete response."""

    body: Body = b""
    content_type: bytes = JSON
    headers: bytes = b""  # header lines, each with its CRLF
    status: int = 200


class Context(Protocol):
    """What handlers use of the server."""

    service: Service
    limits: RequestLimits
    table: Sequence[Route]
    text: TextService

    def infer(self, exchange: Exchange, name: str, version: str) -> None:
        """Submits an inference request; the response is sent later."""


class ErrorForm(NamedTuple):
    """How a dialect writes errors.

    Args:
        name: of its schema in the OpenAPI document.
        schema: JSON schemas of the fields of its object.
        write: the body of an error response.
    """

    name: str
    schema: Fields
    write: Callable[[OxError], bytes]


V2_ERRORS = ErrorForm("Error", {"error": {"type": "string"}}, v2_error_body)

# None, now or later: the handler answers the exchange itself
HandlerResult = Reply | Awaitable[Reply | None] | None
Handler = Callable[[Context, Exchange, PathParameters], HandlerResult]


class Route(NamedTuple):
    """One method of one path.

    Args:
        method: GET (also serves HEAD), POST, DELETE or ANY.
        path: with {parameters}; {model} is the model that the permission is about. A segment may have text after its
            parameter, as in `/v1/models/{model}:predict`.
        permission: None for public routes.
        handler: returns or sends the response.
        about: the summary in the OpenAPI document.
        request: JSON schemas of the fields of the body.
        reply: JSON schemas of the fields of the response, {} for any JSON; None for an empty response.
        each_model: the OpenAPI document lists it once per model, with the model's tensors.
        undocumented: the reason why the OpenAPI document leaves it out.
        events: the response is a stream of server-sent events; a route with the field `stream` answers either way.
        errors: how its errors are written.
        stream_type: the content type of a stream.
        query: the names of query parameters.
        required: the fields of the body without which the request is refused.
        optional: the fields that a response may lack.
        lenient: fields of the body that are null count as absent, and unknown ones are ignored: the header ox-warning
            names them.
    """

    method: str
    path: str
    permission: Permission | None
    handler: Handler
    about: str = ""
    request: Fields | None = None
    reply: Fields | None = None
    each_model: bool = False
    undocumented: str = ""
    events: bool = False
    errors: ErrorForm = V2_ERRORS
    stream_type: str = "text/event-stream"
    query: Sequence[str] = ()
    required: Sequence[str] = ()
    optional: Sequence[str] = ()
    lenient: bool = False


class RouteNode:
    """A node of the path tree: the routes of its path, and its children."""

    __slots__ = ("children", "parameter", "parameter_child", "routes", "suffixed")

    def __init__(self) -> None:
        self.routes: dict[str, Route] = {}  # by method
        self.children: dict[str, RouteNode] = {}  # by the next path segment
        self.parameter = ""  # name of a parameter as the next segment
        self.parameter_child: RouteNode | None = None  # the child for that parameter
        self.suffixed: dict[str, tuple[str, RouteNode]] = {}  # parameter and child by the text after the parameter

    def add_child(self, part: str) -> RouteNode:
        """The child for a segment of a route's path, created if missing."""
        if not part.startswith("{"):
            return self.children.setdefault(part, RouteNode())
        name, _, suffix = part[1:].partition("}")
        if suffix:
            return self.suffixed.setdefault(suffix, (name, RouteNode()))[1]
        if self.parameter_child is None:
            self.parameter, self.parameter_child = name, RouteNode()
        return self.parameter_child


class Routes:
    """Finds routes by the segments of a path (`ox.serve.protocol.rest.target`)."""

    def __init__(self, table: Iterable[Route]) -> None:
        self._root = RouteNode()
        for route in table:
            branch = self._root
            for part in route.path.removeprefix("/").split("/"):
                branch = branch.add_child(part)
            branch.routes[route.method] = route

    def find(self, parts: list[str]) -> tuple[dict[str, Route], PathParameters] | None:
        """The routes of a path by method, and its path parameters; None for an unknown path."""
        return _find(self._root, parts, 0, {})

    def begins(self, parts: list[str]) -> bool:
        """Whether the path of a route begins with these segments; a parameter stands for any segment."""
        branches = [self._root]
        for part in parts:
            below = [each.children.get(part) for each in branches] + [each.parameter_child for each in branches]
            branches = [branch for branch in below if branch is not None]
        return bool(branches)

    def permission(self, method: str, parts: list[str]) -> Permission | None:
        """The permission that a request needs; None for public routes.

        An unknown path or method changes nothing, so it never needs "manage". An unknown path needs "read" of the model
        in it, or of all models. An unknown method of a known path needs the permission of the path, or "read" in place
        of "manage".
        """
        found = self.find(parts)
        if found is None:
            return READ._replace(model=self._model(parts))
        routes, names = found
        route = routes.get("GET" if method == "HEAD" else method)
        permission = (route or next(iter(routes.values()))).permission
        if permission is None:  # public for reading only
            return READ if route is None and method == "POST" else None
        if route is None and permission.action == "manage":
            permission = READ
        return permission._replace(model=names["model"]) if "model" in names else permission

    def _model(self, parts: list[str]) -> str:
        branch: RouteNode | None = self._root
        for part in parts:
            if branch is None:
                break
            if branch.parameter == "model":
                return part
            branch = branch.children.get(part)
        return ALL


def _find(
    branch: RouteNode, parts: list[str], place: int, names: PathParameters
) -> tuple[dict[str, Route], PathParameters] | None:
    if place == len(parts):
        return (branch.routes, names) if branch.routes else None
    part = parts[place]
    below = branch.children.get(part)
    found = None if below is None else _find(below, parts, place + 1, names)
    for suffix, (parameter, child) in branch.suffixed.items():
        if found is None and part.endswith(suffix) and part != suffix:
            found = _find(child, parts, place + 1, {**names, parameter: part.removesuffix(suffix)})
    if found is None and branch.parameter_child is not None and part:
        found = _find(branch.parameter_child, parts, place + 1, {**names, branch.parameter: part})
    return found
