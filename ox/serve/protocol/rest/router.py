"""The HTTP router: finds the route of a request and sends the response of its handler."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from ox.errors import OxError, ServeError
from ox.serve.config.request_limits import RequestLimits
from ox.serve.protocol.rest.admission import Admission
from ox.serve.protocol.rest.codec import Codec
from ox.serve.protocol.rest.error_body import error_body
from ox.serve.protocol.rest.inference import InferenceEndpoint, infer
from ox.serve.protocol.rest.routes import ROUTES, TABLE, infer_target
from ox.serve.protocol.rest.routing import ANY, Reply, Route
from ox.serve.protocol.rest.target import path_segments
from ox.serve.protocol.rest.text_routes import no_such_path
from ox.serve.protocol.text.text_service import TextService
from ox.serve.repository.model import Model
from ox.serve.service import Service
from ox.serve.transport.http import Exchange, ListenerState


class Router:
    """Handles exchanges with a service.

    Args:
        service: all calls except inference, and the models.
        limits: limits on requests.
        nan: allow NaN and infinities in the JSON of inference.
    """

    def __init__(self, service: Service, limits: RequestLimits, nan: bool = False) -> None:
        self.service, self.limits, self._nan = service, limits, nan
        self.admission: Admission | None = None  # for all but the hot path; None if the listener checks all requests
        self.table: Sequence[Route] = TABLE
        self.text = TextService(service.repository, limits, service.clock)
        self._endpoints: dict[
            bytes, InferenceEndpoint
        ] = {}  # the hot path: the inference routes of the models, by exact target
        self._tasks: set[asyncio.Future[None]] = set()  # the event loop keeps only weak references
        service.repository.changed.append(self._refresh)
        self._refresh()

    def _refresh(self) -> None:
        endpoints_by_model: dict[Model, InferenceEndpoint] = {
            endpoint.model: endpoint for endpoint in self._endpoints.values()
        }
        endpoints: dict[bytes, InferenceEndpoint] = {}
        for (name, version), model in self.service.repository.routes.items():
            endpoint = endpoints_by_model.get(model)
            if endpoint is None:
                codec = Codec(
                    model.name, model.version, model.signature, self.limits.reply, self.service.regions, self._nan
                )
                endpoint = endpoints_by_model[model] = InferenceEndpoint(model, codec)
            endpoints[infer_target(name, version)] = endpoint
        self._endpoints = endpoints

    def attach(self, listener_state: ListenerState) -> None:
        """Adds a listener to the telemetry, and gives its errors the form of their routes."""
        listener_state.error_body = error_body
        self.service.telemetry.listener_states.append(listener_state)

    def __call__(self, exchange: Exchange) -> None:
        endpoint = self._endpoints.get(exchange.target)
        if endpoint is not None and exchange.method == b"POST":
            infer(exchange, endpoint, self.limits)
            return
        cors = exchange.connection.listener_state.cors
        if cors is not None and cors.is_preflight(exchange.method, exchange.headers):
            exchange.reply(200, extra=cors.preflight(exchange.headers))
            return
        try:
            self._dispatch(exchange)
        except MethodNotAllowed as error:
            allowed = b"allow: %s, OPTIONS\r\n" % error.allowed.encode()
            if exchange.method == b"OPTIONS":
                exchange.reply(200, extra=allowed)
            else:
                exchange.send_error(error, allowed)

    def _dispatch(self, exchange: Exchange) -> None:
        """Calls the handler of the route, for all requests except the hot path."""
        if self.admission is not None:
            self.admission(exchange.method, exchange.target, exchange.headers, exchange.peer)
        parts = path_segments(exchange.target)
        found = ROUTES.find(parts)
        if found is None and exchange.method == b"CONNECT":
            raise ServeError("CONNECT is not supported: this server is not a proxy", status=501)
        if found is None:
            raise no_such_path(parts)
        routes, names = found
        outcome = _route(exchange, routes).handler(self, exchange, names)
        if isinstance(outcome, Reply):
            _send(exchange, outcome)
        elif outcome is not None:
            task = asyncio.ensure_future(self._reply_later(exchange, outcome))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def infer(self, exchange: Exchange, name: str, version: str) -> None:
        """Runs an inference request whose target is not in the usual spelling.

        Raises:
            ServeError: unknown model (404), or an invalid request.
        """
        model = self.service.repository.find(name, version)
        infer(exchange, self._endpoints[infer_target(model.name, model.version)], self.limits)

    async def _reply_later(self, exchange: Exchange, outcome: Awaitable[Reply | None]) -> None:
        try:
            reply = await outcome
            if reply is not None:
                _send(exchange, reply)
        except OxError as error:
            exchange.send_error(error)
        except Exception:
            exchange.send_internal_error()


def _send(exchange: Exchange, reply: Reply) -> None:
    exchange.reply(reply.status, reply.body, reply.content_type, reply.headers)


def _route(exchange: Exchange, routes: dict[str, Route]) -> Route:
    """The route of the exchange's method; HEAD is GET.

    Raises:
        MethodNotAllowed: the path does not support the method.
    """
    method = exchange.method.decode("latin-1")
    route = routes.get("GET" if method == "HEAD" else method) or routes.get(ANY)
    if route is None:
        raise MethodNotAllowed(exchange, ", ".join("GET, HEAD" if allowed == "GET" else allowed for allowed in routes))
    return route


class MethodNotAllowed(ServeError):
    """Status 405: the path supports other methods."""

    def __init__(self, exchange: Exchange, allowed: str) -> None:
        what = f"{exchange.method.decode('latin-1')} is not for {exchange.target[:200].decode('latin-1')}"
        super().__init__(what, status=405, expected=allowed)
        self.allowed = allowed
