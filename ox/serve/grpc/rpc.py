"""What a transport gives to a gRPC call, and what it wants of a method: the only words that both sides share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import NamedTuple, Protocol

from ox.errors import OxError, ServeError
from ox.serve.answer_memory import Body


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


CODES = {
    400: Code.INVALID_ARGUMENT,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    405: Code.UNIMPLEMENTED,
    408: Code.DEADLINE_EXCEEDED,
    409: Code.ALREADY_EXISTS,
    413: Code.RESOURCE_EXHAUSTED,
    415: Code.UNIMPLEMENTED,
    422: Code.INVALID_ARGUMENT,
    429: Code.RESOURCE_EXHAUSTED,
    431: Code.RESOURCE_EXHAUSTED,
    499: Code.CANCELLED,
    501: Code.UNIMPLEMENTED,
    503: Code.UNAVAILABLE,
    504: Code.DEADLINE_EXCEEDED,
    507: Code.RESOURCE_EXHAUSTED,
}


def code_of(error: OxError) -> Code:
    """The code that says over gRPC what an error's HTTP status says over HTTP."""
    return CODES.get(error.status, Code.INTERNAL) if isinstance(error, ServeError) else Code.INTERNAL


def failure(error: OxError) -> tuple[Code, str]:
    """An error as `Rpc.fail` takes it."""
    return code_of(error), error.one_line()


class Rpc(Protocol):
    """One call of a client. Everything happens on the event loop; a call that was abandoned ignores its answers."""

    metadata: Mapping[bytes, bytes]  # names in lower case; a name that came twice has its values joined by a comma
    arrived: float  # perf_counter, when the call began
    deadline: float | None  # perf_counter, when the client stops waiting; the transport ends the call then
    peer: str  # the client's address
    on_abandon: Callable[[], None] | None  # set by the method; called if the client goes away before the call is over
    ended: Callable[[], None] | None  # streaming: set at the first message; called once, after the client's last one
    state: object  # the method's own, None at first

    def send(self, message: Body) -> None:
        """One serialised message to the client. Unary calls send exactly one."""

    def finish(self) -> None:
        """The call is over and went well. A stream without any message is finished by the transport."""

    def fail(self, code: int, text: str) -> None:
        """The call is over and did not go well."""

    def hold(self) -> None:
        """Streaming: no further message until `resume`; the client has to wait. Flow control tells it so."""

    def resume(self) -> None:
        """Streaming: go on with what `hold` stopped."""


# What is told of each call that was answered: path, metadata, code, arrival (perf_counter), the client's address.
Note = Callable[[bytes, Mapping[bytes, bytes], int, float, str], None]


class Method(NamedTuple):
    """One method that clients may call."""

    path: bytes  # b"/inference.GRPCInferenceService/ModelInfer"
    streaming: bool  # any number of messages either way; else exactly one each way
    call: Callable[[bytes, Rpc], None]  # takes a message as it came, answers now or later, never raises
