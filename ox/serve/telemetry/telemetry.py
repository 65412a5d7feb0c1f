"""What a process of the server counts beside its models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from ox.serve.telemetry.snapshot import Snapshot, snapshot

if TYPE_CHECKING:
    from ox.serve.http import Front
    from ox.serve.repository.repository import Repository


class Telemetry:
    """What a server can tell about itself.

    `fronts` are its listeners, `rpcs` counts answers over gRPC by code, `reloads` (model, "ok" or "failed"), `dropped`
    says how many lines of the log nobody could take.
    """

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.fronts: list[Front] = []
        self.rpcs: Counter[int] = Counter()
        self.reloads: Counter[tuple[str, str]] = Counter()
        self.dropped: Callable[[], int] = lambda: 0

    def snapshot(self) -> Snapshot:
        """This process alone. Called on the event loop."""
        replies: Counter[int] = sum((front.replies for front in self.fronts), Counter())
        reloads: dict[str, dict[str, int]] = {}
        for (model, outcome), count in self.reloads.items():
            reloads.setdefault(model, {})[outcome] = count
        server = {
            "replies": {str(status): count for status, count in replies.items()},
            "rpcs": {str(code): count for code, count in self.rpcs.items()},
            "connections": sum(len(front.connections) for front in self.fronts),
            "buffered": sum(front.buffered for front in self.fronts),
            "reloads": reloads,
            "dropped": self.dropped(),
        }
        return snapshot(self.repository.models(), server)
