"""An inference request in progress, the same for all transports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from ox.errors import OxError, ServeError
from ox.graph.contract import Array
from ox.serve.batching.job import Job
from ox.serve.protocol.v2.request import Request
from ox.serve.repository.model import Model
from ox.serve.response_memory import LARGE, Body

C = TypeVar("C")
W = TypeVar("W")


class Pending(Job, ABC, Generic[C, W]):
    """A job that encodes and sends its result to the client. Counted once, as answered or as failed.

    Args:
        request: the parsed request.
        model: runs and counts it.
        write: encodes the response.
        client: the exchange, call or stream that gets the response.
        received_at: when the request arrived, by the model's clock.
        headers: HTTP headers or gRPC metadata.
        deadline: when the client stops waiting; None for no deadline.
    """

    __slots__ = ("client", "headers", "model", "received_at", "write")

    def __init__(
        self,
        request: Request,
        model: Model,
        write: Callable[[Request, Sequence[Array]], W],
        client: C,
        received_at: float,
        headers: Mapping[bytes, bytes],
        deadline: float | None = None,
    ) -> None:
        super().__init__(request, model.clock.now())
        self.model, self.write, self.client = model, write, client
        self.received_at, self.headers = received_at, headers
        if deadline is not None and (self.deadline is None or deadline < self.deadline):
            self.deadline = deadline

    def submit(self) -> None:
        """Submits the request to the model.

        Raises:
            ServeError: the queue is full, or another limit is reached.
        """
        try:
            self.model.submit(self)
        except ServeError as error:
            self._count_failure(error)
            raise

    def abandon(self) -> None:
        if not self.abandoned:  # otherwise it has been counted
            super().abandon()
            self._count_failure(None)

    def done(self) -> None:
        if self.abandoned:
            return
        if self.error is not None:
            self._count_failure(self.error)
            self.send_error(self.error)
            return
        started = self.model.clock.now()
        try:
            answer = self.encode()
            if len(answer) >= LARGE:
                answer = self.model.answers.track_body(answer)
        except ServeError as error:
            self._count_failure(error)
            self.send_error(error)
            return
        except Exception as error:  # no caller could answer this client
            self._count_failure(error)
            self.send_internal_error()
            return
        self.model.stages.answered(self.received_at, self, started, self.headers)
        self.send(answer)

    def _count_failure(self, error: Exception | None) -> None:
        self.model.stages.failed(error, self.received_at, self.headers)

    @abstractmethod
    def encode(self) -> Body:
        """Encodes the body of the response from `request` and `outputs`.

        Raises:
            ServeError: an output cannot be encoded as requested.
        """

    @abstractmethod
    def send(self, answer: Body) -> None:
        """Sends the response."""

    @abstractmethod
    def send_error(self, error: OxError) -> None:
        """Sends an error response."""

    @abstractmethod
    def send_internal_error(self) -> None:
        """Logs the current exception, a bug in the server, and sends an error response."""
