"""One call of a client, between a transport that carries it and the method that answers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol


class Rpc(Protocol):
    """What a transport gives to a method. Everything happens on the event loop's thread.

    The method answers with any number of `send` (a unary call: exactly one) and then `finish`, or with `fail` at any
    time, at once or later. After `finish`, `fail` or `on_abandon` the call is over: nothing follows, from either side.

    Attributes:
        metadata: the call's headers, names in lower case, "-bin" values as they came.
        peer: the client's address.
        arrived: perf_counter when the call began.
        deadline: perf_counter when the client stops waiting; None for never. The transport ends such a call itself
            (DEADLINE_EXCEEDED).
        on_abandon: set by the method; called when the client cancelled, left, or waited too long.
        ended: set by a streaming method while it takes the first message; called once when the client will send no
            more. A stream that ends without a message is finished by the transport.
        state: the method's own; None when the call begins.
    """

    metadata: Mapping[bytes, bytes]
    peer: str
    arrived: float
    deadline: float | None
    on_abandon: Callable[[], None] | None
    ended: Callable[[], None] | None
    state: object

    def send(self, message: bytes) -> None:
        """One message of the answer, serialised."""

    def finish(self) -> None:
        """The answer is complete: status OK."""

    def fail(self, code: int, text: str) -> None:
        """The call failed; `code` is gRPC's, see `status`."""

    def hold(self) -> None:
        """Hand over no further message of this stream until `resume`: the client is to wait."""

    def resume(self) -> None:
        """Go on with what `hold` stopped; messages may arrive before this returns."""


class Method(NamedTuple):
    """A call of a service.

    Args:
        path: "/package.Service/Method".
        streaming: whether clients may send any number of messages; otherwise exactly one.
        call: takes one message as it came, not yet parsed. It never raises.
    """

    path: bytes
    streaming: bool
    call: Callable[[bytes, Rpc], None]
