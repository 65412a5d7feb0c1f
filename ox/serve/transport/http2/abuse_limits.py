"""Rate limits on resets, pings, settings and empty frames, which cost a client nothing (RFC 9113 10.5)."""

from __future__ import annotations

from collections.abc import Callable

from ox.serve.transport.http2.frames import ENHANCE_YOUR_CALM, Http2ConnectionError


class AbuseLimit:
    """A token bucket: `burst` tokens, `rate` new ones per second by `now`."""

    __slots__ = ("_burst", "_name", "_now", "_rate", "_refilled_at", "_tokens")

    def __init__(self, name: str, burst: int, rate: float, now: Callable[[], float]) -> None:
        self._name, self._burst, self._rate = name, burst, rate
        self._tokens = float(burst)
        self._now, self._refilled_at = now, now()

    def consume(self) -> None:
        """Takes a token; raises Http2ConnectionError if there is none."""
        if self._tokens < 1:
            now = self._now()
            self._tokens = min(self._burst, self._tokens + (now - self._refilled_at) * self._rate)
            self._refilled_at = now
            if self._tokens < 1:
                raise Http2ConnectionError(ENHANCE_YOUR_CALM, f"too many {self._name}")
        self._tokens -= 1
