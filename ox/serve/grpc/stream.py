"""ModelStreamInfer: many requests over one call. They run at once and are answered in their order.

A request that fails is answered in the stream, which goes on; where the call's metadata says `triton_grpc_error: true`
the call fails instead.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter
from weakref import WeakSet

from ox.errors import OxError, ServeError
from ox.serve.answer_memory import Body, Parts
from ox.serve.grpc.answer import Writer, refused, streamed
from ox.serve.grpc.inference import Inference, Pending, broken
from ox.serve.grpc.rpc import Rpc, failure
from ox.serve.grpc.wire import split
from ox.serve.http.pace import no_room
from ox.serve.v2.request import Request


class Stream:
    """One call: its requests that are not yet answered.

    Args:
        rpc: the call.
        most: how many requests may be worked on at once; the client has to wait with the next.
    """

    def __init__(self, rpc: Rpc, most: int) -> None:
        self.rpc, self._most = rpc, most
        self._turns: deque[Turn] = deque()
        self._first: Turn | None = None  # whose answer the others waited for at the last look
        self._ended = self._held = self._over = self._draining = False
        self._strict = rpc.metadata.get(b"triton_grpc_error") == b"true"
        rpc.ended, rpc.on_abandon = self._end, self._abandon

    def take(self, turn: Turn) -> None:
        """A request that will be answered in its turn."""
        self._turns.append(turn)
        if len(self._turns) >= self._most:
            self._held = True
            self.rpc.hold()

    def advance(self) -> None:
        """Sends the answers whose turn it is."""
        turns, rpc = self._turns, self.rpc
        while turns and turns[0].message and not self._over:
            turn = turns.popleft()
            if turn.code and self._strict:
                self._abandon()
                rpc.fail(turn.code, turn.text)
                return
            rpc.send(turn.message)
        if self._over:
            return
        if self._ended and not turns:
            self._over = True
            rpc.finish()
        elif self._draining:
            if not turns:
                self._over = True
                rpc.fail(*failure(ServeError("the server is stopping", status=503, hint="again in a moment")))
        elif self._held and len(turns) < self._most:
            self._held = False
            rpc.resume()

    def shed(self) -> None:
        """Runs wait for memory: answers that wait for an earlier one, which may wait for theirs, become refusals."""
        first = self._turns[0] if self._turns else None
        stuck = first is not None and first is self._first and not first.message
        self._first = first
        for turn in list(self._turns) if stuck else ():
            if isinstance(turn.message, Parts):
                turn.refuse(*failure(no_room()))

    def drain(self) -> None:
        """Takes no more requests, answers those that it took, and ends."""
        self._draining = True
        if not self._over:
            self.rpc.hold()
            self.advance()

    def _end(self) -> None:
        self._ended = True
        self.advance()

    def _abandon(self) -> None:
        self._over = True
        for turn in self._turns:
            if turn.job is not None:
                turn.job.abandon()
        self._turns.clear()


class Turn:
    """One request of a stream; `message` is its answer once there is one."""

    __slots__ = ("_stream", "code", "id", "job", "message", "text")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.id = ""
        self.message: Body = b""
        self.code, self.text = 0, ""
        self.job: Running | None = None  # while it runs

    def answer(self, answer: Body) -> None:
        self.job = None
        self.message = streamed(answer)
        self._stream.advance()

    def refuse(self, code: int, text: str) -> None:
        self.job = None
        self.code, self.text = code, text
        self.message = refused(text, self.id)
        self._stream.advance()


class Running(Pending):
    """A request of a stream on its way."""

    __slots__ = ("_turn",)

    def __init__(self, writer: Writer, rpc: Rpc, received: float, request: Request, turn: Turn) -> None:
        super().__init__(writer, rpc, received, request)
        self._turn = turn

    def answer(self, answer: Body) -> None:
        self._turn.answer(answer)

    def refuse(self, code: int, text: str) -> None:
        self._turn.refuse(code, text)


class Streams:
    """ModelStreamInfer.

    Args:
        inference: has the requests run.
        most: how many requests of one stream are worked on at once.
    """

    def __init__(self, inference: Inference, most: int) -> None:
        self._inference, self._most = inference, most
        self._open: WeakSet[Stream] = WeakSet()

    def drain(self) -> None:
        """Ends all streams."""
        for stream in list(self._open):
            stream.drain()

    def shed(self) -> None:
        """See `Stream.shed`; called about every second while runs wait for memory."""
        for stream in list(self._open):
            stream.shed()

    def take(self, body: bytes, rpc: Rpc) -> None:
        """One message of a stream."""
        stream = rpc.state
        if not isinstance(stream, Stream):
            rpc.state = stream = Stream(rpc, self._most)
            self._open.add(stream)
        inference, received = self._inference, perf_counter()
        turn = Turn(stream)
        stream.take(turn)
        try:
            parts = split(body)
            turn.id = parts.id
            request = inference.read(body, parts, rpc, received)
            turn.job = Running(inference.writer, rpc, received, request, turn)
            inference.submit(turn.job)
        except OxError as error:
            turn.refuse(*failure(error))
        except Exception:
            turn.refuse(*broken())
