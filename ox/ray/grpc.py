"""gRPC of a Ray Serve ingress: the unary methods of the V2 protocol, as bytes, which the replicas parse themselves.

`ModelStreamInfer` is missing: Ray Serve would need a generator for each stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any

import grpc

from ox.serve.protocol.grpc.methods import PATH
from ox.serve.response_memory import Body
from ox.serve.transport.grpc.grpcio_transport import STATUS_CODES, client_address, metadata_of
from ox.serve.transport.grpc.rpc import Method

SERVICE = PATH.strip("/")
METHODS = (
    "ModelInfer", "ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelConfig",
    "ModelStatistics", "RepositoryIndex",
)  # fmt: skip  # those that change or follow one server are no calls for one of several replicas


def add_servicer(servicer: Any, server: Any) -> None:
    """The servicer function for Ray Serve: ``gRPCOptions(grpc_servicer_functions=["ox.ray.grpc.add_servicer"])``."""
    handlers = {name: grpc.unary_unary_rpc_method_handler(getattr(servicer, name)) for name in METHODS}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))


class Message:
    """The bytes of a response, as Ray Serve asks a message for them."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def SerializeToString(self) -> bytes:
        return self.content


class CallFailed(Exception):
    """A call that ends with an error, which is in its context."""


class Call:
    """Implements `ox.serve.transport.grpc.rpc.Rpc` for one unary call."""

    def __init__(self, context: Any) -> None:
        self.metadata: Mapping[bytes, bytes] = metadata_of(context)
        self.received_at = perf_counter()
        self.deadline: float | None = None  # Ray Serve itself ends calls that take too long
        self.peer = client_address(context.peer() or "")
        self.on_cancel: Callable[[], None] | None = None
        self.on_half_close: Callable[[], None] | None = None
        self.on_flow: Callable[[bool], None] | None = None
        self.state: object = None
        self.failure: tuple[int, str] | None = None
        self.content = b""
        self.ended = asyncio.Event()

    def send(self, message: Body) -> None:
        self.content = message if isinstance(message, bytes) else message.join()
        self.ended.set()

    def finish(self) -> None:
        self.ended.set()

    def fail(self, code: int, text: str) -> None:
        if not self.ended.is_set():
            self.failure = code, text
            self.ended.set()

    def pause(self) -> None:
        """Only streams pause."""

    def resume(self) -> None:
        """Only streams pause."""


def method_of(name: str) -> Callable[[Any, bytes, Any], Awaitable[Message]]:
    """A method of a replica that answers calls of this name with the replica's table `methods`."""

    async def answer(replica: Any, request: bytes, grpc_context: Any) -> Message:
        call = Call(grpc_context)
        method: Method = replica.methods[f"{PATH}{name}".encode()]
        method.call(request, call)
        try:
            await call.ended.wait()
        finally:
            if not call.ended.is_set() and call.on_cancel is not None:
                call.on_cancel()
        if call.failure is not None:
            code, text = call.failure
            grpc_context.set_code(STATUS_CODES[code])
            grpc_context.set_details(text)
            raise CallFailed(text)
        return Message(call.content)

    return answer
