"""One request on its way through the server."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from ox.errors import OxError
from ox.graph.contract import Array
from ox.serve.v2.request import Request


class Job:
    """One request in the queue, and what became of it: outputs or an error."""

    __slots__ = ("abandoned", "arrived", "error", "outputs", "request", "run_s", "started")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.arrived = perf_counter()
        self.started = self.run_s = 0.0
        self.abandoned = False  # the client has gone
        self.outputs: Sequence[Array] = ()
        self.error: OxError | None = None

    def abandon(self) -> None:
        """Nobody waits for the outcome any more."""
        self.abandoned = True

    def done(self) -> None:
        """Called on the event loop when there is an outcome; for a subclass to fill in."""
