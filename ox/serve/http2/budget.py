"""What a client may do often, but not for ever: resets, pings, settings, frames that carry nothing."""

from __future__ import annotations

from time import monotonic

from ox.serve.http2.frames import ENHANCE_YOUR_CALM, ConnectionFault


class Budget:
    """So many at once, and so many a second after that."""

    __slots__ = ("_burst", "_left", "_name", "_rate", "_since")

    def __init__(self, name: str, burst: int, rate: float) -> None:
        self._name, self._burst, self._rate = name, burst, rate
        self._left = float(burst)
        self._since = monotonic()

    def spend(self) -> None:
        """Raises ConnectionFault when nothing is left."""
        if self._left < 1:
            now = monotonic()
            self._left = min(self._burst, self._left + (now - self._since) * self._rate)
            self._since = now
            if self._left < 1:
                raise ConnectionFault(ENHANCE_YOUR_CALM, f"too many {self._name}")
        self._left -= 1
