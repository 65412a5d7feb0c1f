"""A token bucket: a limit on the rate of calls and on bursts."""

from __future__ import annotations


class Bucket:
    """Holds at most `burst` tokens and gains `rate` of them a second. A call takes one."""

    __slots__ = ("_at", "_tokens", "burst", "rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate, self.burst = rate, burst
        self._tokens, self._at = burst, now

    def take(self, now: float) -> float:
        """0 if the call may go ahead, otherwise the seconds until one may. `now` is of a clock that never goes back."""
        tokens = min(self.burst, self._tokens + (now - self._at) * self.rate)
        self._at = now
        if tokens >= 1:
            self._tokens = tokens - 1
            return 0.0
        self._tokens = tokens
        return (1 - tokens) / self.rate
