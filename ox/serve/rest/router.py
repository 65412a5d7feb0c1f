"""The calls of the Open Inference Protocol V2 over HTTP, from a path to an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from inspect import isawaitable
from typing import Any
from urllib.parse import quote

import orjson

from ox.errors import OxError, ServeError
from ox.serve.answer_memory import Body
from ox.serve.http import JSON, Exchange, Front
from ox.serve.http.encoding import pack
from ox.serve.limits import Limits
from ox.serve.repository.model import Model
from ox.serve.rest.admission import Admission
from ox.serve.rest.body import document_of
from ox.serve.rest.codec import Codec
from ox.serve.rest.inference import Target, infer
from ox.serve.rest.openapi import openapi
from ox.serve.rest.page import POLICY, page
from ox.serve.rest.routes import TABLE, NotReady, Route, Routes, names_of
from ox.serve.rest.target import parts_of
from ox.serve.service import Service
from ox.serve.web.site import Site

HTML = b"text/html; charset=utf-8"
ROUTES = Routes(TABLE)


class Router:
    """Answers exchanges from a service.

    Args:
        service: what knows the answers.
        limits: what clients may do.
        nan: whether the JSON of inference may hold NaN and the infinities.
    """

    def __init__(self, service: Service, limits: Limits, nan: bool = False) -> None:
        self.service, self.limits, self._nan = service, limits, nan
        self.admission: Admission | None = None  # asked about all but the hot path; for the others the front asks
        self._targets: dict[bytes, Target] = {}  # the hot path: where inference calls go, by their exact target
        self._site = Site(service)
        self._tasks: set[asyncio.Future[None]] = set()  # the loop itself would forget them
        service.repository.changed.append(self._refresh)
        self._refresh()

    def _refresh(self) -> None:
        known: dict[Model, Target] = {target.model: target for target in self._targets.values()}
        targets: dict[bytes, Target] = {}
        for (name, version), model in self.service.repository.routes.items():
            target = known.get(model)
            if target is None:
                codec = Codec(
                    model.name, model.version, model.signature, self.limits.reply, self.service.regions, self._nan
                )
                target = known[model] = Target(model, codec)
            targets[_path(name, version)] = target
        self._targets = targets

    def attach(self, front: Front) -> None:
        """Binds the router to the connections it answers, whose figures it shows."""
        self.service.telemetry.fronts.append(front)

    def __call__(self, exchange: Exchange) -> None:
        target = self._targets.get(exchange.target)
        if target is not None and exchange.method == b"POST":
            infer(exchange, target, self.limits)
            return
        try:
            self._find(exchange)
        except WrongMethod as error:
            allowed = b"allow: %s, OPTIONS\r\n" % error.allowed.encode()
            if exchange.method == b"OPTIONS":
                exchange.reply(200, extra=allowed)
            else:
                exchange.refuse(error, allowed)

    def _find(self, exchange: Exchange) -> None:
        if self.admission is not None:
            self.admission(exchange.method, exchange.target, exchange.headers, exchange.connection.peer)
        parts = parts_of(exchange.target)
        match parts:
            case ["v2", "models", name, "infer"]:
                self._infer(exchange, name, "")
            case ["v2", "models", name, "versions", version, "infer"] if version:  # no version is no path either
                self._infer(exchange, name, version)
            case ["openapi.json"]:
                self._only(exchange, "GET")
                self._show(exchange, orjson.dumps(openapi(self.service.repository.models())))
            case ["docs"]:
                self._only(exchange, "GET")
                self._show(exchange, page(openapi(self.service.repository.models())), HTML, POLICY)
            case _:
                if (found := ROUTES.find(parts)) is not None:
                    self._call(exchange, *found)
                elif (call := self._site.find(parts)) is not None:
                    self._only(exchange, "GET")
                    call(exchange)
                else:
                    what, hint = f"there is no /{'/'.join(parts)[:200]}", "/docs, /v2/models/MODEL/infer or /metrics"
                    raise ServeError(what, status=404, hint=hint)

    def _infer(self, exchange: Exchange, name: str, version: str) -> None:
        model = self.service.repository.find(name, version)
        self._only(exchange, "POST")
        infer(exchange, self._targets[_path(model.name, model.version)], self.limits)

    def _only(self, exchange: Exchange, *methods: str) -> str:
        """The method, as the table calls it; HEAD is GET.

        Raises:
            WrongMethod: the path does not have it.
        """
        method = exchange.method.decode("latin-1")
        method = "GET" if method == "HEAD" else method
        if method not in methods:
            allowed = ", ".join("GET, HEAD" if allowed == "GET" else allowed for allowed in methods)
            raise WrongMethod(exchange, allowed)
        return method

    def _call(self, exchange: Exchange, routes: dict[str, Route], values: list[str]) -> None:
        route = routes[self._only(exchange, *routes)]
        body = {}
        if route.method == "POST":
            body = document_of(exchange, self.limits)
        try:
            answer = route.ask(self.service, names_of(route, values), body)
        except NotReady as state:
            exchange.reply(400, orjson.dumps(state.document))
            return
        if isawaitable(answer):
            task = asyncio.ensure_future(self._later(exchange, route, answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._answer(exchange, route, answer)

    async def _later(self, exchange: Exchange, route: Route, answer: Awaitable[Any]) -> None:
        try:
            self._answer(exchange, route, await answer)
        except OxError as error:
            exchange.refuse(error)
        except Exception:
            exchange.fail()

    def _answer(self, exchange: Exchange, route: Route, answer: Any) -> None:
        # Never packed: Triton's asyncio client says that it accepts gzip, and cannot read it but from inference.
        exchange.reply(200, b"" if route.form is None else orjson.dumps(route.form(answer)))

    @staticmethod
    def _show(exchange: Exchange, body: Body, kind: bytes = JSON, extra: bytes = b"") -> None:
        if b"accept-encoding" in exchange.headers:
            body, line = pack(body, exchange.headers[b"accept-encoding"])
            extra += line
        exchange.reply(200, body, kind, extra)


class WrongMethod(ServeError):
    """The path has other methods."""

    def __init__(self, exchange: Exchange, allowed: str) -> None:
        what = f"{exchange.method.decode('latin-1')} is not for {exchange.target[:200].decode('latin-1')}"
        super().__init__(what, status=405, expected=allowed)
        self.allowed = allowed


def _path(name: str, version: str) -> bytes:
    """Where inference calls for a model go."""
    return f"/v2/models/{quote(name)}{f'/versions/{version}' if version else ''}/infer".encode()
