"""The calls of the Open Inference Protocol V2, from a path to an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson

from ox import __version__
from ox.errors import ServeError
from ox.graph.contract import TensorInfo
from ox.serve.batcher import Job
from ox.serve.encoding import pack, unpack
from ox.serve.http import JSON, Exchange, Front
from ox.serve.limits import Limits
from ox.serve.metrics import CONTENT_TYPE, Metrics
from ox.serve.model import Model
from ox.serve.v2 import Request

EXTENSIONS = ["binary_tensor_data"]
BINARY = b"application/octet-stream"
Call = Callable[[Exchange], None]


class Service:
    """Answers exchanges from a set of models."""

    def __init__(self, models: Sequence[Model], limits: Limits) -> None:
        self.models = {model.name: model for model in models}
        self.limits = limits
        # The hot path: the exact targets of inference calls.
        self._infer = {
            target.encode(): model
            for model in models
            for target in (f"/v2/models/{model.name}/infer", f"/v2/models/{model.name}/versions/{model.version}/infer")
        }

    def attach(self, front: Front) -> None:
        """Binds the service to the connections it answers, whose figures it shows."""
        self._front = front
        self._metrics = Metrics(front, self.models.values())

    def __call__(self, exchange: Exchange) -> None:
        model = self._infer.get(exchange.target)
        if model is not None and exchange.method == b"POST":
            self._answer(exchange, model)
            return
        try:
            path = unquote(urlsplit(exchange.target.decode("latin-1")).path)
        except ValueError as problem:  # a whole URL with an address that is none
            raise ServeError("the target of the request is not a URL", got=str(problem)) from None
        method, call = self._route(path)
        if exchange.method != method and (exchange.method, method) != (b"HEAD", b"GET"):
            error = ServeError(
                f"{exchange.method.decode()} is not for {path[:200]}", status=405, expected=method.decode()
            )
            exchange.refuse(error, extra=b"allow: %s\r\n" % (b"GET, HEAD" if method == b"GET" else method))
            return
        call(exchange)

    def _route(self, path: str) -> tuple[bytes, Call]:
        match path.strip("/").split("/"):
            case ["v2"]:
                return b"GET", self._server
            case ["v2", "health", "live"]:
                return b"GET", _ok
            case ["v2", "health", "ready"]:
                return b"GET", self._ready
            case ["metrics"]:
                return b"GET", self._show_metrics
            case ["v2", "models", name, *rest]:
                model = self.models.get(name)
                if model is None:
                    names = ", ".join(f"'{other}'" for other in self.models)
                    raise ServeError(f"there is no model '{name[:100]}'", status=404, expected=names)
                if rest[:1] == ["versions"] and len(rest) > 1:
                    if rest[1] != model.version:
                        what = f"model '{name}' has no version '{rest[1][:100]}'"
                        raise ServeError(what, status=404, expected=f"'{model.version}'")
                    rest = rest[2:]
                match rest:
                    case []:
                        return b"GET", lambda exchange: exchange.reply(200, orjson.dumps(describe(model)))
                    case ["ready"]:
                        return b"GET", self._ready
                    case ["infer"]:
                        return b"POST", lambda exchange: self._answer(exchange, model)
        raise ServeError(f"there is no {path[:200]}", status=404, hint="/v2, /v2/models/MODEL/infer or /metrics")

    def _server(self, exchange: Exchange) -> None:
        exchange.reply(200, orjson.dumps({"name": "ox", "version": __version__, "extensions": EXTENSIONS}))

    def _ready(self, exchange: Exchange) -> None:
        exchange.reply(400 if self._front.draining else 200)

    def _show_metrics(self, exchange: Exchange) -> None:
        exchange.reply(200, self._metrics.text(), CONTENT_TYPE)

    def _answer(self, exchange: Exchange, model: Model) -> None:
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
        request = model.codec.decode(body, length)
        stages = model.stages
        stages.parse.observe(perf_counter() - exchange.arrived)
        job = Pending(exchange, model, request)
        exchange.on_abandon = job.abandon
        model.submit(job)


class Pending(Job):
    """A job whose outcome answers an exchange."""

    __slots__ = ("_exchange", "_model")

    def __init__(self, exchange: Exchange, model: Model, request: Request) -> None:
        super().__init__(request)
        self._exchange, self._model = exchange, model

    def done(self) -> None:
        if self.abandoned:
            return
        if self.error is not None:
            self._exchange.refuse(self.error)
            return
        exchange, model, request = self._exchange, self._model, self.request
        stages = model.stages
        stages.queue.observe(self.started - self.arrived)
        stages.run.observe(self.run_s)
        begun = perf_counter()
        try:
            body, length = model.codec.encode(request, self.outputs)
        except ServeError as error:
            exchange.refuse(error)
            return
        except Exception:  # nobody above could still tell this client
            exchange.fail()
            return
        extra = b"" if length is None else b"inference-header-content-length: %d\r\n" % length
        if b"accept-encoding" in exchange.headers:
            body, line = pack(body, exchange.headers[b"accept-encoding"])
            extra += line
        stages.serialise.observe(perf_counter() - begun)
        exchange.reply(200, body, JSON if length is None else BINARY, extra)


def _ok(exchange: Exchange) -> None:
    exchange.reply(200)


def _length(text: bytes, most: int) -> int:
    if not text.isdigit() or len(text) > 12 or int(text) > most:
        expected = f"a number up to {most}, the length of the body"
        raise ServeError(
            "the header Inference-Header-Content-Length is wrong", expected=expected, got=text[:40].decode("latin-1")
        )
    return int(text)


def describe(model: Model) -> dict[str, Any]:
    """A model's metadata in the protocol's form."""
    return {
        "name": model.name,
        "versions": [model.version],
        "platform": "onnx_onnxv1",
        "inputs": [_tensor(info) for info in model.inputs],
        "outputs": [_tensor(info) for info in model.outputs],
    }


def _tensor(info: TensorInfo) -> dict[str, Any]:
    shape = [size if isinstance(size, int) else -1 for size in info.dims]
    entry: dict[str, Any] = {"name": info.name, "datatype": info.dtype, "shape": shape}
    parameters = {"meaning": info.meaning, "labels": info.labels}
    known = {name: value for name, value in parameters.items() if value is not None}
    return {**entry, "parameters": known} if known else entry
