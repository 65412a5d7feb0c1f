"""The interface between gRPC transports and methods: calls, methods, status codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import NamedTuple, Protocol

from ox.errors import OxError, ServeError
from ox.serve.response_memory import Body


class StatusCode(IntEnum):
    """gRPC's status codes."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


STATUS_OF_HTTP = {
    400: StatusCode.INVALID_ARGUMENT,
    401: StatusCode.UNAUTHENTICATED,
    403: StatusCode.PERMISSION_DENIED,
    404: StatusCode.NOT_FOUND,
    405: StatusCode.UNIMPLEMENTED,
    408: StatusCode.DEADLINE_EXCEEDED,
    409: StatusCode.ALREADY_EXISTS,
    413: StatusCode.RESOURCE_EXHAUSTED,
    415: StatusCode.UNIMPLEMENTED,
    422: StatusCode.INVALID_ARGUMENT,
    429: StatusCode.RESOURCE_EXHAUSTED,
    431: StatusCode.RESOURCE_EXHAUSTED,
    499: StatusCode.CANCELLED,
    501: StatusCode.UNIMPLEMENTED,
    503: StatusCode.UNAVAILABLE,
    504: StatusCode.DEADLINE_EXCEEDED,
    507: StatusCode.RESOURCE_EXHAUSTED,
}


def status_of(error: OxError) -> StatusCode:
    """The gRPC status code for an error's HTTP status."""
    return (
        STATUS_OF_HTTP.get(error.status, StatusCode.INTERNAL) if isinstance(error, ServeError) else StatusCode.INTERNAL
    )


def error_status(error: OxError) -> tuple[StatusCode, str]:
    """Status code and message of an error, the arguments of `Rpc.fail`."""
    return status_of(error), error.one_line()


class Rpc(Protocol):
    """One call of a client, used on the event loop only. A cancelled call ignores its responses."""

    metadata: Mapping[bytes, bytes]  # names in lower case; values of repeated names are joined by commas
    received_at: float  # when the call began, by the server's clock
    deadline: float | None  # by the same clock; the transport ends the call then
    on_cancel: Callable[[], None] | None  # set by the method; called if the client cancels or disconnects
    on_half_close: Callable[[], None] | None  # streaming: set at the first message; called after the last one
    on_flow: Callable[[bool], None] | None  # streaming: called with True when the client reads slowly, then with False
    state: object  # for the method; None at first

    @property
    def peer(self) -> str:
        """The client's address."""

    def send(self, message: Body) -> None:
        """Sends a serialised message. Unary calls send exactly one."""

    def finish(self) -> None:
        """Ends the call with status OK. The transport finishes a stream without any message."""

    def fail(self, code: int, text: str) -> None:
        """Ends the call with an error."""

    def pause(self) -> None:
        """Streaming: deliver no message until `resume`. Flow control makes the client wait."""

    def resume(self) -> None:
        """Streaming: deliver messages again."""


# Called after each call: path, metadata, status code, arrival, the client's address.
CallLogger = Callable[[bytes, Mapping[bytes, bytes], int, float, str], None]


class Method(NamedTuple):
    """One method that clients may call."""

    path: bytes  # b"/inference.GRPCInferenceService/ModelInfer"
    streaming: bool  # any number of messages each way; otherwise one each way
    call: Callable[[bytes, Rpc], None]  # receives a serialised message, responds now or later, never raises
