"""A text of ModelStreamInfer in progress: several answers to one request, each sent at once.

They do not wait for the answers of earlier requests of the stream, as in Triton; a client tells them apart by the id.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ox.errors import OxError, ServeError
from ox.serve.access.client import Client
from ox.serve.generation.request import TokenEvent
from ox.serve.protocol.grpc.response import stream_error, stream_response
from ox.serve.protocol.grpc.text_tensors import TextRequest
from ox.serve.protocol.text.text_job import TextJob, TokenCounts
from ox.serve.transport.grpc.rpc import error_status

if TYPE_CHECKING:
    from ox.serve.protocol.grpc.infer_stream import InferStream


class StreamText:
    """Writes the answers of a `TextJob` to a stream.

    Args:
        stream: of the client.
        request: what was asked.
        client: who waits.
        received_at: when the request arrived, by the model's clock.
    """

    def __init__(self, stream: InferStream, request: TextRequest, client: Client, received_at: float) -> None:
        self._stream, self._request, self._client = stream, request, client
        self._parts: list[str] = []
        requests = request.call.requests(client.name)
        self.job = TextJob(request.call.model, requests, 1, self, received_at, stream.rpc.metadata)
        tokens = len(request.call.prompt) + (requests[0].max_tokens or 0)
        self._reserved = client.reserve(tokens, request.call.model.clock.now())
        try:
            self.job.submit()
        except ServeError:
            client.settle(self._reserved, 0)
            raise
        stream.texts.add(self)
        if request.call.options.remarks.unknown:
            request.call.model.stages.unknown_parameters += 1

    def cancel(self) -> None:
        """The client has left."""
        self.job.abandon()
        self._settle()

    def _settle(self) -> None:
        self._client.settle(self._reserved, self.job.counts.prompt + self.job.counts.completion)

    def _end(self, send: Callable[[], None]) -> None:
        self._stream.texts.discard(self)  # an error may end the call, which cancels its texts: this one is over
        self._settle()
        send()
        self._stream.send_ready()

    # ---- TextWriter

    def add(self, index: int, event: TokenEvent) -> None:
        if not self._request.call.stream:
            self._parts.append(event.text)
        elif event.text:
            self._stream.rpc.send(stream_response(self._request.answer(event.text)))

    def finish(self, usage: TokenCounts) -> None:
        def send() -> None:
            if not self._request.call.stream:
                self._stream.rpc.send(stream_response(self._request.answer("".join(self._parts))))
            if self._request.final:
                self._stream.rpc.send(stream_response(self._request.end()))

        self._end(send)

    def fail(self, error: OxError) -> None:
        code, text = error_status(error)
        self._end(lambda: self._stream.send_error(code, text, stream_error(text, self._request.call.id)))
