"""What a transport gives to a gRPC call, and what it wants of a method: the only words that both sides share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from google.protobuf.message import Message


class Code(IntEnum):
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


CODE = {
    400: Code.INVALID_ARGUMENT,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    408: Code.DEADLINE_EXCEEDED,
    409: Code.FAILED_PRECONDITION,
    413: Code.RESOURCE_EXHAUSTED,
    415: Code.UNIMPLEMENTED,
    429: Code.RESOURCE_EXHAUSTED,
    431: Code.RESOURCE_EXHAUSTED,
    499: Code.CANCELLED,
    501: Code.UNIMPLEMENTED,
    503: Code.UNAVAILABLE,
    504: Code.DEADLINE_EXCEEDED,
}


def code_of(status: int) -> Code:
    """The code that says over gRPC what an HTTP status says over HTTP."""
    return CODE.get(status, Code.INTERNAL)


class Rpc(Protocol):
    """One call of a client. Everything happens on the event loop; a call that was abandoned ignores its answers."""

    metadata: Mapping[bytes, bytes]  # names in lower case; a name that came twice has its values joined by a comma
    arrived: float  # perf_counter, when the call began
    deadline: float | None  # perf_counter, when the client stops waiting
    peer: str  # the client's address
    on_abandon: Callable[[], None] | None  # called if the client goes away before the call is finished
    ended: Callable[[], None] | None  # streaming: called once, after the client's last message

    def send(self, message: bytes) -> None:
        """One serialised message to the client. Unary calls send exactly one."""

    def finish(self) -> None:
        """The call is over and went well."""

    def fail(self, code: int, text: str) -> None:
        """The call is over and did not go well."""


class Method(NamedTuple):
    """One method that clients may call."""

    path: bytes  # b"/inference.GRPCInferenceService/ModelInfer"
    streaming: bool  # both ways; else one message each way
    request: type[Message]
    call: Callable[[Any, Rpc], None]  # once a message; answers through the Rpc now or later; may raise OxError at once
