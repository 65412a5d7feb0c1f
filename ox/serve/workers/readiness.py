"""What is ready in every worker: the readiness that each of them reports to clients, since any of them may be asked."""

from __future__ import annotations

from typing import Any


class Readiness:
    """The states that workers report, and what they have in common. A state has `ready`, whether the worker has loaded
    what was there at the start, and `routes`, the names and versions that it answers to, as lists of two.

    Args:
        count: of workers. Until all of them have reported once, nothing is ready.
    """

    def __init__(self, count: int) -> None:
        self._count, self._started = count, False
        self._states: dict[int, dict[str, Any]] = {}

    def update(self, number: int, state: dict[str, Any]) -> None:
        """A worker reports its state."""
        self._states[number] = state
        self._started = self._started or len(self._states) == self._count

    def remove(self, number: int) -> None:
        """A worker has ended: no client reaches it."""
        self._states.pop(number, None)

    def common(self) -> dict[str, Any]:
        """What is ready in all workers, as a state."""
        states = list(self._states.values())
        if not self._started or not states:
            return {"ready": False, "routes": []}
        first, *rest = ({(name, version) for name, version in state["routes"]} for state in states)
        routes = sorted(first.intersection(*rest))
        return {"ready": all(state["ready"] for state in states), "routes": [list(route) for route in routes]}
