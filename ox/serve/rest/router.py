"""The calls of the Open Inference Protocol V2 over HTTP, from a path to an answer."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple
from urllib.parse import quote

import orjson

from ox.errors import ServeError
from ox.serve.batching.job import Job
from ox.serve.http import JSON, Exchange, Front
from ox.serve.http.encoding import pack, unpack
from ox.serve.limits import Limits
from ox.serve.repository.model import Model
from ox.serve.rest.admission import Admission
from ox.serve.rest.codec import Codec
from ox.serve.rest.target import parts_of
from ox.serve.service import Service
from ox.serve.v2.request import Request
from ox.serve.web.site import Site

BINARY = b"application/octet-stream"
Call = Callable[[Exchange], None]


class Route(NamedTuple):
    """Where an inference call goes."""

    model: Model
    codec: Codec


class Router:
    """Answers exchanges from a service."""

    def __init__(self, service: Service, limits: Limits) -> None:
        self.service, self.limits = service, limits
        self.admission: Admission | None = None  # asked about all but the hot path; for the others the front asks
        self._routes: dict[bytes, Route] = {}  # the hot path: the exact targets of inference calls
        self._site = Site(service)
        service.repository.changed.append(self._refresh)
        self._refresh()

    def _refresh(self) -> None:
        known = {route.model: route for route in self._routes.values()}
        routes: dict[bytes, Route] = {}
        for (name, version), model in self.service.repository.routes.items():
            route = known.get(model) or Route(
                model,
                Codec(model.name, model.version, model.signature, self.limits.reply, self.service.regions),
            )
            known[model] = route
            routes[_target(name, version)] = route
        self._routes = routes

    def attach(self, front: Front) -> None:
        """Binds the router to the connections it answers, whose figures it shows."""
        self.service.telemetry.fronts.append(front)

    def __call__(self, exchange: Exchange) -> None:
        route = self._routes.get(exchange.target)
        if route is not None and exchange.method == b"POST":
            self._infer(exchange, route)
            return
        if self.admission is not None:
            self.admission(exchange.method, exchange.target, exchange.headers, exchange.connection.peer)
        parts = parts_of(exchange.target)
        path = "/" + "/".join(parts)
        method, call = self._route(parts)
        if exchange.method != method and (exchange.method, method) != (b"HEAD", b"GET"):
            error = ServeError(
                f"{exchange.method.decode()} is not for {path[:200]}", status=405, expected=method.decode()
            )
            exchange.refuse(error, extra=b"allow: %s\r\n" % (b"GET, HEAD" if method == b"GET" else method))
            return
        call(exchange)

    def _route(self, parts: list[str]) -> tuple[bytes, Call]:
        service = self.service
        match parts:
            case ["v2"]:
                return b"GET", lambda exchange: exchange.reply(200, orjson.dumps(service.server_metadata()))
            case ["v2", "health", "live"]:
                return b"GET", lambda exchange: exchange.reply(200)
            case ["v2", "health", "ready"]:
                return b"GET", lambda exchange: exchange.reply(200 if service.server_ready() else 400)
            case ["v2", "models", name, *rest]:
                version = ""
                if rest[:1] == ["versions"] and len(rest) > 1:
                    version, rest = rest[1], rest[2:]
                model = service.repository.find(name, version)
                match rest:
                    case []:
                        return b"GET", lambda exchange: exchange.reply(
                            200, orjson.dumps(service.model_metadata(name, version))
                        )
                    case ["ready"]:
                        return b"GET", lambda exchange: exchange.reply(
                            200 if service.model_ready(name, version) else 400
                        )
                    case ["infer"]:
                        route = self._routes[_target(model.name, model.version)]
                        return b"POST", lambda exchange: self._infer(exchange, route)
        if (call := self._site.find(parts)) is not None:
            return b"GET", call
        raise ServeError(
            f"there is no /{'/'.join(parts)[:200]}", status=404, hint="/v2, /v2/models/MODEL/infer or /metrics"
        )

    def _infer(self, exchange: Exchange, route: Route) -> None:
        headers = exchange.headers
        body = exchange.body
        if b"content-encoding" in headers:
            body = unpack(body, headers[b"content-encoding"], self.limits.body)
        header = headers.get(b"inference-header-content-length")
        length = None if header is None else _length(header, len(body))
        text = len(body) if length is None else length
        if text > self.limits.json:
            most = f"at most {self.limits.json} bytes"
            hint = "fewer rows, or sending the tensors as binary data"
            raise ServeError("the JSON is too large", status=413, expected=most, got=f"{text} bytes", hint=hint)
        try:
            job = Pending(exchange, route, route.codec.decode(body, length))
            route.model.submit(job)
        except ServeError as error:
            route.model.stages.failed(error, exchange.arrived, exchange.headers)
            raise
        exchange.on_abandon = job.abandon


class Pending(Job):
    """A job whose outcome answers an exchange."""

    __slots__ = ("_exchange", "_route")

    def __init__(self, exchange: Exchange, route: Route, request: Request) -> None:
        super().__init__(request)
        self._exchange, self._route = exchange, route

    def abandon(self) -> None:
        super().abandon()
        self._route.model.stages.failed(None, self._exchange.arrived, self._exchange.headers)

    def done(self) -> None:
        if self.abandoned:
            return
        exchange, route, request = self._exchange, self._route, self.request
        stages = route.model.stages
        if self.error is not None:
            stages.failed(self.error, exchange.arrived, exchange.headers)
            exchange.refuse(self.error)
            return
        begun = perf_counter()
        try:
            body, length = route.codec.encode(request, self.outputs)
        except ServeError as error:
            stages.failed(error, exchange.arrived, exchange.headers)
            exchange.refuse(error)
            return
        except Exception as error:  # nobody above could still tell this client
            stages.failed(error, exchange.arrived, exchange.headers)
            exchange.fail()
            return
        extra = b"" if length is None else b"inference-header-content-length: %d\r\n" % length
        if b"accept-encoding" in exchange.headers:
            body, line = pack(body, exchange.headers[b"accept-encoding"])
            extra += line
        stages.answered(exchange.arrived, self, begun, exchange.headers)
        exchange.reply(200, body, JSON if length is None else BINARY, extra)


def _target(name: str, version: str) -> bytes:
    """Where inference calls for a model go."""
    return f"/v2/models/{quote(name)}{f'/versions/{version}' if version else ''}/infer".encode()


def _length(text: bytes, most: int) -> int:
    if not text.isdigit() or len(text) > 12 or int(text) > most:
        expected = f"a number up to {most}, the length of the body"
        raise ServeError(
            "the header Inference-Header-Content-Length is wrong", expected=expected, got=text[:40].decode("latin-1")
        )
    return int(text)
