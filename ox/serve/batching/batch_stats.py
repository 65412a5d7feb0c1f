"""Counters of a batcher, for statistics and metrics. Changed on the event loop only."""

from __future__ import annotations

REASONS = ("full", "idle", "wait", "deadline")


class BatchStats:
    """Plain counts since the start.

    `full`, `idle`, `wait`, `deadline`: batches by why they left: no more rows fitted; an instance was free; they had
    waited long enough; the deadline of their first job came near. `split`: batches that failed and were run in halves.
    `late`, `gone`, `refused`: jobs that met their deadline, whose client had left, that the full queue turned away.
    `cells`, `padding`: elements along the padded dimensions that were run, and how many of them were padding.
    """

    __slots__ = ("cells", "deadline", "full", "gone", "idle", "late", "padding", "refused", "split", "wait")

    def __init__(self) -> None:
        self.full = self.idle = self.wait = self.deadline = 0
        self.split = self.late = self.gone = self.refused = self.cells = self.padding = 0

    def by_reason(self) -> dict[str, int]:
        """Batches by the reason why they left."""
        return {reason: getattr(self, reason) for reason in REASONS}
