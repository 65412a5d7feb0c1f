"""ModelStreamInfer: many requests over one call. They run concurrently; responses are sent in order, except texts.

A failed request gets an error response and the stream continues; with `triton_grpc_error: true` in the metadata the
call fails instead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from weakref import WeakSet

from ox.errors import OxError, ServeError
from ox.serve.access.client import Client
from ox.serve.protocol.grpc.inference import Inference, internal_error
from ox.serve.protocol.grpc.response import stream_error, stream_response
from ox.serve.protocol.grpc.stream_text import StreamText
from ox.serve.protocol.grpc.text_tensors import TextRequest, UnreadText
from ox.serve.protocol.grpc.wire import split_message
from ox.serve.protocol.v2.pending import Pending
from ox.serve.response_memory import Body, Buffers
from ox.serve.telemetry.stages import Stages
from ox.serve.transport.grpc.rpc import Rpc, error_status
from ox.serve.transport.http.client_rate import buffers_full


class InferStream:
    """One call with its unanswered requests.

    Args:
        rpc: the call.
        max_requests: the limit of concurrent requests; flow control makes the client wait.
    """

    def __init__(self, rpc: Rpc, max_requests: int) -> None:
        self.rpc, self._max_requests = rpc, max_requests
        self._requests: deque[StreamRequest] = deque()
        self.texts: set[StreamText] = set()  # requests of models that make texts, which are answered out of order
        self._reading: set[asyncio.Task[None]] = set()  # the event loop keeps only weak references
        self._first_before: StreamRequest | None = None  # the first unanswered request at the last check
        self._half_closed = self._paused = self._finished = self._draining = self._reads_slowly = False
        self._fail_on_error = rpc.metadata.get(b"triton_grpc_error") == b"true"
        rpc.on_half_close, rpc.on_cancel = self._on_half_close, self._cancel
        rpc.on_flow = self._on_flow

    def add(self, request: StreamRequest) -> None:
        """Adds a request, whose response is sent in order."""
        self._requests.append(request)
        self._check_count()

    def start_text(self, placeholder: StreamRequest, request: TextRequest, client: Client, received_at: float) -> None:
        """Has a text made, in place of a request that was added.

        Raises:
            ServeError: the client used too many tokens, or the engine refuses the request.
        """
        text = StreamText(self, request, client, received_at)
        if self._reads_slowly:
            text.job.set_paused(True)
        self._requests.remove(placeholder)
        self._check_count()
        self.send_ready()  # later requests no longer wait for this one

    def read_text(
        self,
        placeholder: StreamRequest,
        read: Callable[[], TextRequest],
        client: Client,
        received_at: float,
        stages: Stages,
    ) -> asyncio.Task[None]:
        """Has a text made whose request takes long to read: that happens in a thread. `stages` counts its failure."""
        task = asyncio.get_running_loop().create_task(self._read_text(placeholder, read, client, received_at, stages))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)
        return task

    async def _read_text(
        self,
        placeholder: StreamRequest,
        read: Callable[[], TextRequest],
        client: Client,
        received_at: float,
        stages: Stages,
    ) -> None:
        def run() -> TextRequest | None:  # threads that are awaited by others do nothing for those who have left
            return None if self._finished else read()

        try:
            with stages.counting_failures(received_at, self.rpc.metadata):
                request = await asyncio.get_running_loop().run_in_executor(None, run)
                if request is not None and placeholder in self._requests:
                    self.start_text(placeholder, request, client, received_at)
                else:  # the client has left
                    stages.failed(None, received_at, self.rpc.metadata)
        except OxError as error:
            placeholder.send_error(*error_status(error))
        except Exception:
            placeholder.send_error(*internal_error())

    def send_error(self, code: int, text: str, message: Body) -> None:
        """An error of a request outside of the order; it ends the call if the client wants that."""
        if self._fail_on_error:
            self._cancel()
            self.rpc.fail(code, text)
        else:
            self.rpc.send(message)

    def _on_flow(self, paused: bool) -> None:
        """The client reads slowly, or reads again."""
        self._reads_slowly = paused
        for text in self.texts:
            text.job.set_paused(paused)

    @property
    def _unanswered(self) -> int:
        return len(self._requests) + len(self.texts)

    def _check_count(self) -> None:
        if self._unanswered >= self._max_requests:
            self._paused = True
            self.rpc.pause()

    def send_ready(self) -> None:
        """Sends finished responses in order."""
        turns, rpc = self._requests, self.rpc
        while turns and turns[0].message and not self._finished:
            turn = turns.popleft()
            if turn.error_code and self._fail_on_error:
                self._cancel()
                rpc.fail(turn.error_code, turn.error_text)
                return
            rpc.send(turn.message)
        if self._finished:
            return
        if self._half_closed and not self._unanswered:
            self._finished = True
            rpc.finish()
        elif self._draining:
            if not self._unanswered:
                self._finished = True
                rpc.fail(*error_status(ServeError("the server is stopping", status=503, hint="again in a moment")))
        elif self._paused and self._unanswered < self._max_requests:
            self._paused = False
            rpc.resume()

    def shed_blocked(self) -> None:
        """Under memory pressure: replaces responses that wait for an earlier one by errors."""
        first = self._requests[0] if self._requests else None
        blocked = first is not None and first is self._first_before and not first.message
        self._first_before = first
        for turn in list(self._requests) if blocked else ():
            if isinstance(turn.message, Buffers):
                turn.send_error(*error_status(buffers_full()))

    def drain(self) -> None:
        """Reads no more requests, answers the accepted ones, and ends."""
        self._draining = True
        if not self._finished:
            self.rpc.pause()
            self.send_ready()

    def _on_half_close(self) -> None:
        self._half_closed = True
        self.send_ready()

    def _cancel(self) -> None:
        self._finished = True
        for turn in self._requests:
            if turn.job is not None:
                turn.job.abandon()
        self._requests.clear()
        for text in list(self.texts):
            text.cancel()
        self.texts.clear()


class StreamRequest:
    """One request of a stream; `message` is its response, b"" until it is finished."""

    __slots__ = ("_stream", "error_code", "error_text", "id", "job", "message")

    def __init__(self, stream: InferStream) -> None:
        self._stream = stream
        self.id = ""
        self.message: Body = b""
        self.error_code, self.error_text = 0, ""
        self.job: StreamPending | None = None  # set while it runs

    def respond(self, answer: Body) -> None:
        self.job = None
        self.message = stream_response(answer)
        self._stream.send_ready()

    def send_error(self, code: int, text: str) -> None:
        self.job = None
        self.error_code, self.error_text = code, text
        self.message = stream_error(text, self.id)
        self._stream.send_ready()


class StreamPending(Pending[StreamRequest, Body]):
    """A request of a stream in progress."""

    __slots__ = ()

    def encode(self) -> Body:
        return self.write(self.request, self.outputs)

    def send(self, answer: Body) -> None:
        self.client.respond(answer)

    def send_error(self, error: OxError) -> None:
        self.client.send_error(*error_status(error))

    def send_internal_error(self) -> None:
        self.client.send_error(*internal_error())


class InferStreams:
    """ModelStreamInfer.

    Args:
        inference: runs the requests.
        max_requests: the limit of concurrent requests per stream.
        max_bytes: the limit of all texts that wait for a thread to be read in.
    """

    def __init__(self, inference: Inference, max_requests: int, max_bytes: int) -> None:
        self._inference, self._max_requests, self._max_bytes = inference, max_requests, max_bytes
        self._unread_bytes = 0  # of these texts
        self._streams: WeakSet[InferStream] = WeakSet()

    def drain(self) -> None:
        """Ends all streams."""
        for stream in list(self._streams):
            stream.drain()

    def shed_blocked(self) -> None:
        """See `InferStream.shed_blocked`; called about every second under memory pressure."""
        for stream in list(self._streams):
            stream.shed_blocked()

    def receive(self, body: bytes, rpc: Rpc) -> None:
        """One message of a stream."""
        stream = rpc.state
        if not isinstance(stream, InferStream):
            rpc.state = stream = InferStream(rpc, self._max_requests)
            self._streams.add(stream)
        inference, received = self._inference, self._inference.now()
        turn = StreamRequest(stream)
        stream.add(turn)
        try:
            parts = split_message(body)
            turn.id = parts.id
            request = inference.read(body, parts, rpc, received)
            if isinstance(request, UnreadText):
                with request.model.stages.counting_failures(received, rpc.metadata):
                    self._begin_text(stream, turn, request, len(body), received)
                return
            turn.job = StreamPending(
                request, request.writer_state.model, inference.write, turn, received, rpc.metadata, rpc.deadline
            )
            turn.job.submit()
        except OxError as error:
            turn.send_error(*error_status(error))
        except Exception:
            turn.send_error(*internal_error())

    def _begin_text(
        self, stream: InferStream, turn: StreamRequest, request: UnreadText, size: int, received: float
    ) -> None:
        """Has a text made. Raises ServeError if the request is refused at once."""
        client, stages = self._inference.client(stream.rpc), request.model.stages
        if request.takes_long:
            self._take(size)
            task = stream.read_text(turn, lambda: request.read().check_form(), client, received, stages)
            task.add_done_callback(lambda _: self._take(-size))
        elif (text := request.read()).has_form:
            stream.read_text(turn, text.check_form, client, received, stages)
        else:
            stream.start_text(turn, text, client, received)

    def _take(self, size: int) -> None:
        """Counts the bytes of a text that waits to be read. Raises ServeError if there are too many."""
        if self._unread_bytes + size > self._max_bytes:
            raise ServeError(
                "the server's buffers are full", status=503, hint="again in a moment",
                expected=f"at most {self._max_bytes} bytes of texts that wait to be read (--limit buffered)",
            )  # fmt: skip
        self._unread_bytes += size
