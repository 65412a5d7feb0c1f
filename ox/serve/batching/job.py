"""One request on its way through the server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ox.errors import OxError
from ox.graph.contract import Array
from ox.serve.protocol.v2.request import Request

if TYPE_CHECKING:
    from ox.serve.batching.running_batch import RunningBatch


class Job:
    """One request in the queue, and what became of it: outputs or an error.

    Times are those of its model's clock. After `deadline` the outcome is not needed; None takes the model's default.

    Args:
        request: the parsed request.
        arrived: the time.
    """

    __slots__ = (
        "abandoned",
        "arrived",
        "deadline",
        "error",
        "on_abandon_result",
        "outputs",
        "priority",
        "request",
        "run_s",
        "running_batch",
        "started",
    )  # fmt: skip

    def __init__(self, request: Request, arrived: float) -> None:
        self.request = request
        self.arrived = arrived
        self.started = self.run_s = 0.0
        self.deadline: float | None = None
        self.priority = 0  # 1 is the highest, 0 what the model takes for it
        self.abandoned = False  # the client does not wait for the outcome
        self.outputs: Sequence[Array] = ()
        self.error: OxError | None = None
        self.running_batch: RunningBatch | None = None  # the run that it is part of
        self.on_abandon_result: Callable[[], None] | None = None  # for a run that waits for memory for it
        parameters = request.parameters
        if parameters:
            self.priority = parameters.get("priority", 0)
            timeout = parameters.get("timeout", 0)  # microseconds
            if timeout:
                self.deadline = self.arrived + timeout / 1e6

    def limit(self, deadline_s: float, timeout_s: float) -> float:
        """Gives it a deadline if it has none, and one no later than `timeout_s` after its arrival if it has: a client
        that has closed its connection looks like one that has only ended its sending, and is run for until then."""
        if self.deadline is None:
            self.deadline = self.arrived + deadline_s
        elif self.deadline > self.arrived + timeout_s:
            self.deadline = self.arrived + timeout_s
        return self.deadline

    def abandon(self) -> None:
        """The client has left before there was an outcome; for a subclass to note. Called on the event loop."""
        self.abandon_result()

    def abandon_result(self) -> None:
        """Mark the outcome as not needed: the client has left, or has its answer already. On the event loop."""
        self.abandoned = True
        if self.running_batch is not None:
            self.running_batch.on_abandon()
        if self.on_abandon_result is not None:
            self.on_abandon_result()

    def done(self) -> None:
        """Called on the event loop when there is an outcome, but not if the job was abandoned; for a subclass to fill
        in."""
