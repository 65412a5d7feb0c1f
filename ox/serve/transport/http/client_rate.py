"""The minimum rate at which clients must read responses while inference waits for response memory."""

from __future__ import annotations

from ox.errors import ServeError
from ox.serve.config.request_limits import SLOWEST, RequestLimits

PRESSURE_SPEEDUP = 10  # under memory pressure, the time to read is `RequestLimits.write_s` divided by this


def min_rate(size: int, limits: RequestLimits) -> float:
    """Bytes per second: the client must read a response of any size within `limits.write_s`."""
    return max(SLOWEST, size / limits.write_s)


def buffers_full() -> ServeError:
    """The error that replaces a waiting response to free its memory."""
    return ServeError("the server's response buffers are full", status=503, hint="again in a moment")


class ClientRate:
    """Measures how many bytes a client reads over a number of checks.

    It counts checks, not seconds, so that a time in which the server itself was stopped does not count.

    Args:
        episode: the episode of memory pressure that the checks belong to.
        checks: the number of checks per measurement.
        min_bytes: bytes that the client must read in one measurement.
        sent: bytes sent before.
    """

    __slots__ = ("_checks", "_checks_left", "_min_bytes", "_sent_before", "episode")

    def __init__(self, episode: int, checks: int, min_bytes: float, sent: int) -> None:
        self.episode = episode
        self._checks = self._checks_left = checks
        self._min_bytes, self._sent_before = min_bytes, sent

    def too_slow(self, sent: int) -> bool:
        """Counts a check; true at the end of a measurement in which the client read too little."""
        self._checks_left -= 1
        if self._checks_left:
            return False
        progress, self._sent_before, self._checks_left = sent - self._sent_before, sent, self._checks
        return progress < self._min_bytes
