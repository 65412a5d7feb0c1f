"""Inference over HTTP: from a whole request to a job, and from the job's outcome to the answer."""

from __future__ import annotations

from time import perf_counter
from typing import NamedTuple

from ox.errors import ServeError
from ox.serve.answer_memory import LARGE
from ox.serve.batching.job import Job
from ox.serve.http import JSON, Exchange
from ox.serve.http.encoding import pack
from ox.serve.limits import Limits
from ox.serve.repository.model import Model
from ox.serve.rest.body import body_of, json_length
from ox.serve.rest.codec import Codec
from ox.serve.v2.request import Request

BINARY = b"application/octet-stream"


class Target(NamedTuple):
    """Where inference calls go: a version of a model, and what reads and writes its tensors."""

    model: Model
    codec: Codec


def infer(exchange: Exchange, target: Target, limits: Limits) -> None:
    """Has a request run; it is answered once it has.

    Raises:
        ServeError: it is wrong, or one too many.
    """
    try:
        body = body_of(exchange, limits)
        length = json_length(exchange.headers, len(body), limits)
        job = Pending(exchange, target, target.codec.decode(body, length))
        target.model.submit(job)
    except ServeError as error:
        target.model.stages.failed(error, exchange.arrived, exchange.headers)
        raise
    exchange.on_abandon = job.abandon


class Pending(Job):
    """A job whose outcome answers an exchange."""

    __slots__ = ("_exchange", "_target")

    def __init__(self, exchange: Exchange, target: Target, request: Request) -> None:
        super().__init__(request)
        self._exchange, self._target = exchange, target

    def abandon(self) -> None:
        if not self.abandoned:  # else it is counted already
            super().abandon()
            self._failed(None)

    def done(self) -> None:
        if self.abandoned:
            return
        exchange = self._exchange
        if self.error is not None:
            self._failed(self.error)
            exchange.refuse(self.error)
            return
        begun = perf_counter()
        try:
            body, length = self._target.codec.encode(self.request, self.outputs)
        except ServeError as error:
            self._failed(error)
            exchange.refuse(error)
            return
        except Exception as error:  # nobody above could still tell this client
            self._failed(error)
            exchange.fail()
            return
        extra = b"" if length is None else b"inference-header-content-length: %d\r\n" % length
        if b"accept-encoding" in exchange.headers:
            body, line = pack(body, exchange.headers[b"accept-encoding"])
            extra += line
        if len(body) >= LARGE:
            body = self._target.model.answers.counted(body)
        self._target.model.stages.answered(exchange.arrived, self, begun, exchange.headers)
        exchange.reply(200, body, JSON if length is None else BINARY, extra)

    def _failed(self, error: Exception | None) -> None:
        self._target.model.stages.failed(error, self._exchange.arrived, self._exchange.headers)
