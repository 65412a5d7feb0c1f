"""How fast a client has to take its answer while runs wait for the memory that it holds."""

from __future__ import annotations

from ox.errors import ServeError
from ox.serve.limits import SLOWEST, Limits

HURRY = 10  # a client is judged by this part of `Limits.write_s`


def least_rate(size: int, limits: Limits) -> float:
    """Bytes a second: an answer, however large, has to be gone in `limits.write_s`."""
    return max(SLOWEST, size / limits.write_s)


def no_room() -> ServeError:
    """For an answer that nothing has been sent of, and that has to make room."""
    return ServeError("the server holds as many answers as it may", status=503, hint="again in a moment")


class Pace:
    """What a client takes over a few looks at it.

    Looks are counted rather than seconds: a time in which this server sent nothing is not held against its clients.

    Args:
        pressure: during which the looks are taken.
        looks: after so many it is judged.
        least: bytes that it has to take until then.
        taken: what it had taken before.
    """

    __slots__ = ("_least", "_left", "_looks", "_taken", "pressure")

    def __init__(self, pressure: int, looks: int, least: float, taken: int) -> None:
        self.pressure = pressure
        self._looks = self._left = looks
        self._least, self._taken = least, taken

    def slow(self, taken: int) -> bool:
        """Another look; whether it took too little."""
        self._left -= 1
        if self._left:
            return False
        moved, self._taken, self._left = taken - self._taken, taken, self._looks
        return moved < self._least
