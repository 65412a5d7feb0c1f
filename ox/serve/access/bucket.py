"""A token bucket: a limit on the rate of calls, or of tokens of texts, and on bursts."""

from __future__ import annotations


class Bucket:
    """Holds at most `burst` tokens and gains `rate` of them a second."""

    __slots__ = ("_at", "_tokens", "burst", "rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate, self.burst = rate, burst
        self._tokens, self._at = burst, now

    def take(self, now: float, count: float = 1.0) -> float:
        """0 if `count` tokens are taken, otherwise the seconds until they can be. `now` is of a clock that never goes
        back."""
        tokens = min(self.burst, self._tokens + (now - self._at) * self.rate)
        self._at = now
        if tokens >= count:
            self._tokens = tokens - count
            return 0.0
        self._tokens = tokens
        return (count - tokens) / self.rate

    def give(self, count: float) -> None:
        """Puts tokens back; a negative count takes them, even if there are not as many."""
        self._tokens = min(self.burst, self._tokens + count)
