"""The life of an inference request, whichever transport brings it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ox.clock import SYSTEM
from ox.errors import OxError, ServeError
from ox.serve.protocol.grpc.infer_stream import StreamPending
from ox.serve.protocol.grpc.inference import UnaryPending
from ox.serve.protocol.rest.inference import HttpPending
from ox.serve.protocol.v2.pending import Pending
from ox.serve.protocol.v2.request import Request
from ox.serve.response_memory import LARGE, Body


class Model:
    """Counts what is said of a request."""

    def __init__(self, full: bool = False) -> None:
        self.full, self.clock = full, SYSTEM
        self.counted: list[Any] = []
        self.large = 0
        self.stages: Any = SimpleNamespace(answered=self._answered, failed=self._failed)
        self.answers: Any = SimpleNamespace(track_body=self._large)

    def submit(self, job: Any) -> None:
        if self.full:
            raise ServeError("too many", status=429)

    def _answered(self, received: float, job: Any, begun: float, headers: Any) -> None:
        self.counted.append("answered")
        assert (received, headers) == (5.0, {b"a": b"b"}) and begun > 5

    def _failed(self, error: Exception | None, received: float, headers: Any) -> None:
        self.counted.append(error)
        assert (received, headers) == (5.0, {b"a": b"b"})

    def _large(self, body: Body) -> Body:
        self.large += 1
        return body


class Sent(Pending[Any, Any]):
    """Writes down what it sends."""

    def __init__(self, model: Model, body: Body | Exception = b"answer") -> None:
        super().__init__(Request(None, {}, 1, (), ()), model, lambda *_: None, None, 5.0, {b"a": b"b"})  # type: ignore[arg-type]
        self.body = body
        self.sent: list[Any] = []

    def encode(self) -> Body:
        if isinstance(self.body, Exception):
            raise self.body
        return self.body

    def send(self, answer: Body) -> None:
        self.sent.append(answer)

    def send_error(self, error: OxError) -> None:
        self.sent.append(error)

    def send_internal_error(self) -> None:
        self.sent.append("crash")


def test_an_answer() -> None:
    model = Model()
    pending = Sent(model)
    pending.submit()
    pending.done()
    assert pending.sent == [b"answer"] and model.counted == ["answered"] and not model.large


def test_a_large_answer_is_counted() -> None:
    model = Model()
    pending = Sent(model, bytes(LARGE))
    pending.done()
    assert len(pending.sent[0]) == LARGE and model.large == 1


def test_one_too_many() -> None:
    model = Model(full=True)
    pending = Sent(model)
    with pytest.raises(ServeError, match="too many") as caught:
        pending.submit()
    assert model.counted == [caught.value] and not pending.sent  # whoever submits it answers


def test_a_run_that_failed() -> None:
    model = Model()
    pending = Sent(model)
    pending.error = ServeError("no memory", status=503)
    pending.done()
    assert pending.sent == model.counted == [pending.error]


def test_an_answer_that_cannot_be_written() -> None:
    for error in (ServeError("NaN"), ZeroDivisionError()):
        model = Model()
        pending = Sent(model, error)
        pending.done()
        assert model.counted == [error]
        assert pending.sent == ([error] if isinstance(error, ServeError) else ["crash"])


def test_a_client_that_leaves_is_counted_once() -> None:
    model = Model()
    pending = Sent(model)
    pending.abandon()
    pending.abandon()
    pending.done()
    assert model.counted == [None] and not pending.sent


def test_every_transport_fills_it_in() -> None:
    assert Pending.__abstractmethods__ == {"encode", "send", "send_error", "send_internal_error"}
    with pytest.raises(TypeError, match="abstract"):
        Pending(None, None, None, None, 0.0, {})  # type: ignore[abstract, arg-type]
    for kind in (HttpPending, UnaryPending, StreamPending):
        assert issubclass(kind, Pending) and not kind.__abstractmethods__
        assert {"done", "abandon", "submit"}.isdisjoint(vars(kind))
