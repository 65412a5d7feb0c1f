"""Control frames (SETTINGS, PING, WINDOW_UPDATE ...) and timeouts of an HTTP/2 connection."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ox.serve.config.request_limits import SLOWEST
from ox.serve.transport.http2 import frames
from ox.serve.transport.http2.abuse_limits import AbuseLimit
from ox.serve.transport.http2.frames import (
    ACK,
    CANCEL,
    DEFAULT_WINDOW,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    MAX_INT31,
    NO_ERROR,
    PING,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    SETTINGS_TIMEOUT,
    WINDOW_UPDATE,
    Http2ConnectionError,
    Http2StreamError,
    frame,
    read_settings,
    settings,
    window_update,
)
from ox.serve.transport.http2.stream import STREAM_WINDOW

if TYPE_CHECKING:
    from ox.serve.transport.http2.connection import Connection

log = logging.getLogger("ox.serve")

FRAME_SIZE = frames.DEFAULT_FRAME_SIZE  # the largest accepted frame: it limits the memory of incomplete frames
CONNECTION_WINDOW = 16 << 20  # the receive window of a connection, in bytes
MAX_SETTINGS = 64  # entries of one SETTINGS frame


class ControlFrames:
    """Handles the control frames of one connection.

    Attributes:
        settings_acknowledged: the client has acknowledged the server's settings.
        frame_limit, reset_limit: rate limits of the client's frames.
    """

    __slots__ = ("_connection", "_sender", "frame_limit", "reset_limit", "settings_acknowledged")

    def __init__(self, connection: Connection) -> None:
        self._connection, self._sender = connection, connection.sender
        self.settings_acknowledged = False
        now = connection.listener_state.now
        self.frame_limit = AbuseLimit("control frames", 2000, 500, now)
        self.reset_limit = AbuseLimit("resets", 1000, 100, now)

    def send_settings(self) -> None:
        """Sends the server's SETTINGS."""
        limits = self._connection.limits
        ours = {
            frames.MAX_CONCURRENT_STREAMS: limits.streams,
            frames.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
            frames.MAX_FRAME_SIZE: FRAME_SIZE,
            frames.MAX_HEADER_LIST_SIZE: limits.header_bytes,
            frames.NO_RFC7540_PRIORITIES: 1,
        }
        self._sender.write(settings(ours) + window_update(0, CONNECTION_WINDOW - DEFAULT_WINDOW))

    def receive(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """Handles a frame other than DATA, HEADERS and CONTINUATION."""
        size = len(payload)
        if kind == WINDOW_UPDATE:
            if size != 4:
                raise Http2ConnectionError(FRAME_SIZE_ERROR, "a WINDOW_UPDATE is not of 4 bytes")
            increment = int.from_bytes(payload, "big") & MAX_INT31
            if stream_id:
                self._check_stream_id(stream_id)
            if increment == 0:
                raise (
                    Http2StreamError(PROTOCOL_ERROR)
                    if stream_id
                    else Http2ConnectionError(PROTOCOL_ERROR, "a window increment of 0")
                )
            self._sender.increase_window(stream_id, increment)
            return
        if kind == RST_STREAM:
            self.reset_limit.consume()
            if size != 4:
                raise Http2ConnectionError(FRAME_SIZE_ERROR, "a RST_STREAM is not of 4 bytes")
            self._check_stream_id(stream_id)
            stream = self._connection.streams.get(stream_id)
            if stream is not None:
                stream.local_closed = True
                self._connection.remove_stream(stream)
                stream.cancel()
            return
        self.frame_limit.consume()
        if kind == PING:
            _check(stream_id, size == 8)
            if not flags & ACK:
                self._sender.write(frame(PING, ACK, 0, payload))
        elif kind == SETTINGS:
            _check(stream_id, size == 0 if flags & ACK else size % 6 == 0)
            if flags & ACK:
                self.settings_acknowledged = True
            else:
                self._apply_settings(payload)
        elif kind == GOAWAY:
            _check(stream_id, size >= 8)
            self._connection.going_away = True  # the client closes, or the server after the last response
        elif kind == PRIORITY:
            if stream_id == 0:
                raise Http2ConnectionError(PROTOCOL_ERROR, "PRIORITY on stream 0")
            if size != 5:
                raise Http2StreamError(FRAME_SIZE_ERROR)
            if int.from_bytes(payload[:4], "big") & MAX_INT31 == stream_id:
                raise Http2StreamError(PROTOCOL_ERROR)
        elif kind == PUSH_PROMISE:
            raise Http2ConnectionError(PROTOCOL_ERROR, "clients cannot push")

    def _check_stream_id(self, stream_id: int) -> None:
        if stream_id > self._connection.last_stream_id or not stream_id & 1:
            raise Http2ConnectionError(PROTOCOL_ERROR, "an idle stream")

    def _apply_settings(self, payload: bytes) -> None:
        pairs = read_settings(payload)
        if len(pairs) > MAX_SETTINGS:
            raise Http2ConnectionError(ENHANCE_YOUR_CALM, "too many settings")
        for name, value in pairs:
            if name in (frames.ENABLE_PUSH, frames.NO_RFC7540_PRIORITIES) and value > 1:
                raise Http2ConnectionError(PROTOCOL_ERROR, "a setting is neither 0 nor 1")
            if name == frames.INITIAL_WINDOW_SIZE and value > MAX_INT31:
                raise Http2ConnectionError(FLOW_CONTROL_ERROR, "the window of a stream is too large")
            if name == frames.MAX_FRAME_SIZE and not frames.DEFAULT_FRAME_SIZE <= value <= 0xFFFFFF:
                raise Http2ConnectionError(PROTOCOL_ERROR, "a frame size out of range")
        latest = dict(pairs)  # the last value counts: applying each one to all streams would amplify attacks
        sender = self._sender
        sender.peer_max_frame = latest.get(frames.MAX_FRAME_SIZE, sender.peer_max_frame)
        if latest.get(frames.HEADER_TABLE_SIZE, 4096) < 4096:
            sender.disable_table()
        sender.write(frame(SETTINGS, ACK, 0, b""))
        if frames.INITIAL_WINDOW_SIZE in latest:
            sender.change_initial_window(latest[frames.INITIAL_WINDOW_SIZE])


def _check(stream_id: int, size_ok: bool) -> None:
    """Raises Http2ConnectionError unless a frame has stream 0 and the right size."""
    if stream_id:
        raise Http2ConnectionError(PROTOCOL_ERROR, "a connection frame with a stream id")
    if not size_ok:
        raise Http2ConnectionError(FRAME_SIZE_ERROR, "a frame of the wrong size")


class Timeouts:
    """Enforces the timeouts of one connection.

    Attributes:
        idle: no data has arrived since the last check.
    """

    __slots__ = ("_connection", "_last_received_at", "_opened_at", "_period", "_ping_sent_at", "idle")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        limits = connection.limits
        self._period = min(limits.request_s, limits.idle_s, limits.write_s) / 4
        self._opened_at = self._last_received_at = connection.listener_state.loop.time()
        self._ping_sent_at: float | None = None  # when an idle client got a PING
        self.idle = True
        connection.deadline = self._opened_at + self._period

    def on_deadline(self, now: float) -> None:
        """Checks all timeouts. Called about four times per shortest timeout."""
        connection, limits = self._connection, self._connection.limits
        if connection.stopped:
            connection.transport.abort()
            return
        connection.deadline = now + self._period
        if not self.idle:
            self.idle, self._last_received_at, self._ping_sent_at = True, now, None
        sender = connection.sender
        if sender.paused:
            pending = connection.transport.get_write_buffer_size()
            if now - sender.checked_at > limits.write_s:
                if pending > sender.pending_before - SLOWEST * limits.write_s:
                    connection.listener_state.slow_clients += 1
                    connection.transport.abort()
                sender.pending_before, sender.checked_at = pending, now
        elif connection.frame_incomplete and now - connection.incomplete_since > limits.request_s:
            connection.close_with_error(Http2ConnectionError(PROTOCOL_ERROR, "a frame was not received in time"))
        elif not connection.control_frames.settings_acknowledged and now - self._opened_at > limits.request_s:
            connection.close_with_error(Http2ConnectionError(SETTINGS_TIMEOUT, "the settings were not acknowledged"))
        else:
            self._check_streams(now)
            if now - self._last_received_at > limits.idle_s:
                self._on_idle(now)

    def _check_streams(self, now: float) -> None:
        connection = self._connection
        limits, streams = connection.limits, connection.streams
        started_before = connection.listener_state.now() - limits.request_s
        min_bytes = SLOWEST * limits.write_s / max(1, len(streams))  # the share of each stream
        for stream in list(streams.values()):
            if stream.timed_out(started_before):
                stream.on_receive_timeout()
            elif stream.queued and now - stream.checked_at > limits.write_s:
                if stream.sent_since_check < min_bytes:
                    connection.listener_state.slow_clients += 1
                    stream.reset(CANCEL)
                    stream.cancel()
                stream.checked_at, stream.sent_since_check = now, 0

    def enforce_rate(self) -> None:
        """Measures each stream by itself: a client may read some streams and not others."""
        listener_state = self._connection.listener_state
        for stream in list(self._connection.streams.values()):
            if not stream.queued:
                stream.client_rate = None
            elif stream.client_rate is None or stream.client_rate.episode != listener_state.pressure_episodes:
                stream.client_rate = listener_state.client_rate(stream.retained_bytes, stream.bytes_sent)
            elif stream.client_rate.too_slow(stream.bytes_sent):
                listener_state.slow_clients += 1
                log.warning("a client does not read its response: %d bytes were dropped", stream.queued)
                stream.reset(CANCEL)
                stream.cancel()

    def _on_idle(self, now: float) -> None:
        """No data has arrived within `limits.idle_s`."""
        connection = self._connection
        if not connection.streams:
            connection.close_with_error(Http2ConnectionError(NO_ERROR, "idle"))
        elif self._ping_sent_at is None:
            self._ping_sent_at = now
            connection.sender.write(frame(PING, 0, 0, b"ox alive"))
        elif now - self._ping_sent_at > connection.limits.write_s:
            connection.transport.abort()
