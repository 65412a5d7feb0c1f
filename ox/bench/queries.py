"""Single requests before the load test: model list, metadata and reference responses."""

from __future__ import annotations

import asyncio
import http.client
import ssl
from typing import Any
from urllib.parse import quote

import orjson

from ox.bench.address import Address
from ox.bench.answer import OK, Reply
from ox.bench.grpc import GrpcCall
from ox.bench.model import Model, as_bytes, from_json, from_message
from ox.bench.protobuf import fields, framed
from ox.bench.request import INFER
from ox.errors import OxError, ServeError
from ox.protobuf import field

SERVICE = "/inference.GRPCInferenceService/"
MODEL_HINT = "--model NAME"


class QueryClient:
    """Raises ServeError if the server cannot be reached or refuses."""

    def __init__(self, address: Address, timeout: float) -> None:
        self.address, self.timeout = address, timeout

    def model(self, name: str | None) -> tuple[Model, list[str]]:
        """The model of that name, or the first one; and the names of all models, if they were listed."""
        names = [] if name is not None else self.names()
        if name is None:
            if not names:
                raise ServeError("the server has no model that is ready", where=self.address.url, hint=MODEL_HINT)
            name = names[0]
        if self.address.grpc:
            return from_message(self._call(SERVICE + "ModelMetadata", field(1, name), f"model {name}"), name), names
        return from_json(self.get(f"/v2/models/{quote(name, safe='')}", f"model {name}"), name), names

    def names(self) -> list[str]:
        what = "the list of models"
        try:
            if self.address.grpc:
                message = self._call(SERVICE + "RepositoryIndex", field(2, 1), what)
                models = [dict(fields(as_bytes(value))) for number, value in fields(message) if number == 1]
                return [as_bytes(m.get(1, b"")).decode() for m in models if m.get(3, b"READY") == b"READY"]
            index = self.get("/v2/repository/index", what, b'{"ready":true}')
            return [str(m["name"]) for m in index if m.get("state", "READY") == "READY"]
        except ServeError as error:
            if error.hint is None:
                error.hint = MODEL_HINT
            raise
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ServeError("the server's list of models cannot be read", hint=MODEL_HINT) from None

    def infer(self, request: bytes) -> Reply:
        """Sends a built request and returns the response, whatever its status."""
        if self.address.grpc:
            return self._grpc(INFER, request)
        head, _, body = request.partition(b"\r\n\r\n")
        start, *lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        status, got, data = self._http("POST", start.split()[1], body, headers)
        length = got.get("inference-header-content-length", "")
        return Reply(status, data, int(length) if length.isdigit() else None)

    def get(self, path: str, what: str, body: bytes | None = None) -> Any:
        """The JSON document at a path, which an error calls `what`; with a body, by POST."""
        headers = {} if self.address.key is None else {"authorization": f"Bearer {self.address.key}"}
        status, _, data = self._http("GET" if body is None else "POST", self.address.root + path, body, headers)
        if status != OK:
            raise ServeError(
                f"the request for {what} failed",
                status=status,
                where=self.address.url,
                got=f"HTTP {status}: {_error_text(data)}",
            )
        try:
            return orjson.loads(data)
        except ValueError:
            raise ServeError(f"the server's response for {what} is not JSON", got=_error_text(data)) from None

    def _call(self, path: str, message: bytes, what: str) -> bytes:
        reply = self._grpc(path, framed(message))
        if reply.failure is not None:
            got = f"{reply.failure}: {_error_text(reply.body)}"
            raise ServeError(f"the request for {what} failed", where=self.address.url, got=got)
        return reply.body

    def _http(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        link = self.address.http_connection(self.timeout)
        try:
            link.request(method, path, body, headers)
            reply = link.getresponse()
            return reply.status, reply.headers, reply.read()
        except (OSError, http.client.HTTPException) as error:
            raise unreachable(self.address, error) from None
        finally:
            link.close()

    def _grpc(self, path: str, request: bytes) -> Reply:
        async def call() -> Reply:
            outcome: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            transport, client = await self.address.connect(
                lambda: GrpcCall(self.address, path, outcome), self.address.context()
            )
            try:
                client.send(request)
                return await outcome
            finally:
                transport.abort()

        async def limited() -> Reply:
            return await asyncio.wait_for(call(), self.timeout)

        try:
            return asyncio.run(limited())
        except (OSError, TimeoutError) as error:
            raise unreachable(self.address, error) from None


def unreachable(address: Address, error: Exception) -> OxError:
    message = str(error) or type(error).__name__
    hint = "is it running? `ox serve model.onnx` starts one"
    if address.tls and isinstance(error, ssl.SSLError):
        message = f"TLS failed: {message}"
        hint = f"does that port speak TLS? {address.plain} is the same without"
    if "CERTIFICATE_VERIFY_FAILED" in message:
        hint = "SSL_CERT_FILE=cert.pem in the environment trusts the server's own certificate"
    return ServeError(f"no answer from {address.url}", got=message, hint=hint)


def _error_text(data: bytes) -> str:
    try:
        return str(orjson.loads(data)["error"])[:300]
    except (ValueError, KeyError, TypeError):
        return data[:200].decode("utf-8", "replace") or "(nothing)"
