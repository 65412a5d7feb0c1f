"""How many texts may wait."""

from __future__ import annotations

from collections import Counter

from ox.errors import ServeError


class QueueLimit:
    """Counts the texts that have not ended, by client. Where one client fills the queue, others still have room for
    their first requests: each has an equal share, and all together twice the limit.

    Called with the engine's lock held.

    Args:
        most: texts that wait.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: Counter[str] = Counter()

    def enter(self, client: str, waiting: int) -> None:
        """A client sends a text, and so many wait already.

        Raises:
            ServeError: there is no room for it (503).
        """
        if waiting >= self._most:
            share = self._most // len({*self._counts, client})
            if self._counts[client] >= share or waiting >= 2 * self._most:
                raise ServeError(
                    "the server is busy", status=503, expected=f"at most {self._most} (--max-queue)",
                    got=f"{waiting} requests wait already", hint="again in a moment",
                )  # fmt: skip
        self._counts[client] += 1

    def leave(self, client: str) -> None:
        """A text has ended."""
        self._counts[client] -= 1
        if not self._counts[client]:
            del self._counts[client]

    def __len__(self) -> int:
        return self._counts.total()
