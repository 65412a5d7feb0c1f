"""What a run may be told: the recipe's defaults under the flags that were given."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ox.errors import ArgumentError


@dataclass(frozen=True)
class Options:
    """Everything besides the page that decides what a run does.

    Args:
        epochs: passes over the training data.
        batch_size: samples a step.
        lr: learning rate, as the recipe's optimizer and scheduler understand it.
        seed: of all random numbers: first weights, order, augmentation.
        device: "cpu", "cuda" or "auto".
        limit: use only the first so many samples of each part; None for all.
        checkpoint_every: seconds between checkpoints within an epoch; one is written after every epoch anyway.
    """

    epochs: int
    batch_size: int
    lr: float
    seed: int = 0
    device: str = "cpu"
    limit: int | None = None
    checkpoint_every: float = 30.0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "limit"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ArgumentError(f"{name} must be a whole number of at least 1", got=repr(value))
        if type(self.seed) is not int or not 0 <= self.seed < 2**63:
            raise ArgumentError("seed must be a whole number from 0 to 2^63 - 1", got=repr(self.seed))
        for name, low in (("lr", 0.0), ("checkpoint_every", -1.0)):
            value = getattr(self, name)
            if type(value) not in (int, float) or not math.isfinite(value) or value <= low:
                raise ArgumentError(f"{name} must be a number above 0", got=repr(value))
        if self.device not in ("cpu", "cuda", "auto"):
            raise ArgumentError("there is no such device", expected="cpu, cuda or auto", got=repr(self.device))

    @classmethod
    def of(cls, defaults: Mapping[str, Any], **flags: Any) -> Options:
        """The defaults, but for the flags that are not None."""
        return cls(**{**defaults, **{name: value for name, value in flags.items() if value is not None}})

    def to_table(self) -> dict[str, Any]:
        """Those that are set, for config.toml."""
        return {name: value for name, value in asdict(self).items() if value is not None}
