"""Inference over HTTP: from a complete request to its response."""

from __future__ import annotations

from typing import NamedTuple

from ox.errors import OxError, ServeError
from ox.serve.config.request_limits import RequestLimits
from ox.serve.protocol.rest.body import json_length, read_body
from ox.serve.protocol.rest.codec import Codec
from ox.serve.protocol.v2.pending import Pending
from ox.serve.repository.model import Model
from ox.serve.response_memory import Body
from ox.serve.transport.http import JSON, Exchange
from ox.serve.transport.http.encoding import compress

BINARY = b"application/octet-stream"
SIZE_HINT = "fewer samples, or sending the tensors as binary data"


class InferenceEndpoint(NamedTuple):
    """A version of a model, with its codec."""

    model: Model
    codec: Codec


def infer(exchange: Exchange, endpoint: InferenceEndpoint, limits: RequestLimits) -> None:
    """Submits a request; the response is sent when the run is finished.

    Raises:
        ServeError: the request is invalid, or a limit is reached.
    """
    try:
        body = read_body(exchange, limits)
        request = endpoint.codec.decode(body, json_length(exchange.headers, len(body), limits, SIZE_HINT))
    except ServeError as error:
        endpoint.model.stages.failed(error, exchange.received_at, exchange.headers)
        raise
    headers = exchange.headers
    pending = HttpPending(request, endpoint.model, endpoint.codec.encode, exchange, exchange.received_at, headers)
    pending.submit()
    exchange.on_cancel = pending.abandon


class HttpPending(Pending[Exchange, tuple[Body, int | None]]):
    """The request of an exchange."""

    __slots__ = ("_content_type", "_lines")

    def encode(self) -> Body:
        body, length = self.write(self.request, self.outputs)
        if length is None:
            self._content_type, self._lines = JSON, b""
        else:
            self._content_type, self._lines = BINARY, b"inference-header-content-length: %d\r\n" % length
        if b"accept-encoding" in self.headers:
            body, line = compress(body, self.headers[b"accept-encoding"])
            self._lines += line
        return body

    def send(self, answer: Body) -> None:
        self.client.reply(200, answer, self._content_type, self._lines)

    def send_error(self, error: OxError) -> None:
        self.client.send_error(error)

    def send_internal_error(self) -> None:
        self.client.send_internal_error()
