"""Which of the versions on disk are served."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Policy:
    """The newest `latest` versions, those that are named in `specific`, or all where both are None."""

    latest: int | None = 1
    specific: frozenset[int] | None = None

    def choose(self, versions: Iterable[int]) -> set[int]:
        """Those of `versions` that are served."""
        newest = sorted(versions, reverse=True)
        if self.specific is not None:
            return set(newest) & self.specific
        return set(newest[: self.latest])

    def to_json(self) -> dict[str, Any]:
        """In the form of a model's configuration."""
        if self.specific is not None:
            return {"specific": {"versions": sorted(self.specific)}}
        return {"all": {}} if self.latest is None else {"latest": {"num_versions": self.latest}}
