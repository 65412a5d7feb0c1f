"""How models are run."""

from __future__ import annotations

from dataclasses import dataclass

from ox.errors import ArgumentError


@dataclass(frozen=True)
class Options:
    """How models are run.

    Args:
        device: "cpu", "cuda" or "auto".
        max_rows: the most rows of a batch; None for 8 on a CPU and 32 on a GPU.
        max_wait_ms: how long a free instance waits for a batch to fill.
        deadline_ms: how long a request may wait in the queue.
        instances: threads that run the model; None for the usable cores, or 1 on a GPU.
        threads: threads of one run.
        max_queue: the most requests that wait.
    """

    device: str = "cpu"
    max_rows: int | None = None
    max_wait_ms: float = 0.0
    deadline_ms: float = 10_000.0
    instances: int | None = None
    threads: int = 1
    max_queue: int = 1024

    def __post_init__(self) -> None:
        for name, least in (("max_rows", 1), ("instances", 1), ("threads", 1), ("max_queue", 1), ("max_wait_ms", 0)):
            value = getattr(self, name)
            if value is not None and not least <= value <= 1 << 20:
                raise ArgumentError(f"{name} is out of range", expected=f"{least} to {1 << 20:,}", got=str(value))
        if not 0 < self.deadline_ms <= 1e9:
            raise ArgumentError(
                "deadline_ms is out of range", expected="more than 0, at most 1e9", got=str(self.deadline_ms)
            )
        if self.max_wait_ms >= self.deadline_ms:
            raise ArgumentError(
                "max_wait_ms is not shorter than deadline_ms: whatever waits for a batch would be too late",
                expected=f"less than {self.deadline_ms:g}",
                got=f"{self.max_wait_ms:g}",
            )
