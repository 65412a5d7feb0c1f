"""Server-sent events as the response of an exchange (WHATWG HTML, 9.2), with comments while there is no event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakSet

from ox.serve.transport.http import Exchange
from ox.serve.transport.http.response_stream import ResponseStream

CONTENT_TYPE = b"text/event-stream; charset=utf-8"
HEADERS = b"cache-control: no-cache\r\nx-accel-buffering: no\r\n"  # nginx would collect the events
HEARTBEAT_S = 15.0  # below the timeouts of proxies
AT_ONCE = 50  # comments, about two milliseconds
PAUSE_S = 0.01  # between two times
COMMENT = b": \n\n"


class EventStream:
    """Events of one response. It begins with the first event or heartbeat, so that an earlier error has its status.

    Args:
        exchange: the request.
        heartbeats: sends comments on this stream.
        on_flow: see `ResponseStream`.
        on_cancel: called if the client leaves before the end.
        content_type: of the response.
        comment: what a heartbeat sends.
    """

    def __init__(
        self,
        exchange: Exchange,
        heartbeats: Heartbeats,
        on_flow: Callable[[bool], None],
        on_cancel: Callable[[], None],
        content_type: bytes = CONTENT_TYPE,
        comment: bytes = COMMENT,
    ) -> None:
        self._exchange, self._heartbeats = exchange, heartbeats
        self._on_flow, self._on_cancel = on_flow, on_cancel
        self._content_type, self._comment = content_type, comment
        self._response: ResponseStream | None = None
        self.silent = True  # nothing was sent since the last heartbeat
        heartbeats.add(self)

    @property
    def begun(self) -> bool:
        """Whether the client has got a status."""
        return self._response is not None

    def send(self, event: bytes) -> None:
        """Sends events, each complete with its `data: ` and blank line."""
        self._write(event)

    def end(self) -> None:
        """Ends the response."""
        self.close()
        if self._response is not None:
            self._response.end()

    def close(self) -> None:
        """There are no more events; the response is not ended."""
        self._heartbeats.remove(self)

    def heartbeat(self) -> None:
        """Shows the client, and all between, that the connection is alive."""
        self._write(self._comment)

    def _write(self, data: bytes) -> None:
        self.silent = False
        if self._response is None:
            self._response = self._exchange.stream_response(200, self._content_type, HEADERS)
            self._response.on_cancel, self._response.on_flow = self._on_cancel, self._on_flow
            if self._response.paused:
                self._on_flow(True)
        self._response.write(data)


class Heartbeats:
    """Sends comments on all streams that have been silent for a while; one timer for all of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, every_s: float = HEARTBEAT_S) -> None:
        self._loop, self._every_s = loop, every_s
        self._streams: WeakSet[EventStream] = WeakSet()
        self._due: list[EventStream] = []  # of this round
        self._timer: asyncio.TimerHandle | None = None

    def add(self, stream: EventStream) -> None:
        self._streams.add(stream)
        if self._timer is None:
            self._timer = self._loop.call_later(self._every_s, self._beat)

    def remove(self, stream: EventStream) -> None:
        self._streams.discard(stream)

    def _beat(self) -> None:
        self._due = self._due or list(self._streams)
        due, self._due = self._due[:AT_ONCE], self._due[AT_ONCE:]
        for stream in due:
            if stream in self._streams:
                if stream.silent:
                    stream.heartbeat()
                stream.silent = True
        if self._due:  # others have their turn in between
            self._timer = self._loop.call_later(PAUSE_S, self._beat)
        else:
            self._timer = self._loop.call_later(self._every_s, self._beat) if self._streams else None
