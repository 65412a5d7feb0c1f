"""What the engine has done: counts and times."""

from __future__ import annotations

from typing import Any

from ox.serve.telemetry.histogram import SECONDS, Histogram

TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens", "drafted_tokens", "accepted_tokens")
COUNTS = ("requests", *TOKENS, "preemptions")
TIMES = ("first_token", "between_tokens")


class GenerationStats:
    """Written by the engine's thread; `snapshot` is called with the engine's lock held, and so is everything that
    writes."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(COUNTS, 0)
        self.ends: dict[str, int] = {}  # texts by finish reason; "error" for those that failed
        self.times = {name: Histogram(SECONDS) for name in TIMES}
        self.busy_s = 0.0  # of runs

    def ended(self, reason: str) -> None:
        self.ends[reason] = self.ends.get(reason, 0) + 1

    def read(self, prompt_tokens: int, cached_tokens: int) -> None:
        """A prompt has been read, of which `cached_tokens` were not computed for it."""
        self.counts["prompt_tokens"] += prompt_tokens
        self.counts["cached_tokens"] += cached_tokens

    def emitted(self, first: bool, seconds: float) -> None:
        """A text has a token, so long after its arrival, or after the token before."""
        self.times["first_token" if first else "between_tokens"].observe(seconds)
        self.counts["completion_tokens"] += 1

    def snapshot(self) -> dict[str, Any]:
        """In the form of `ox.serve.telemetry.snapshot`."""
        times = {name: {"counts": list(each.counts), "total": each.total} for name, each in self.times.items()}
        return {**self.counts, "ends": dict(self.ends), "times": times, "busy_s": self.busy_s}
