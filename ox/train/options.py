"""What a run may be told: the recipe's defaults under the flags that were given."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ox.errors import ArgumentError

# what a run may be gone on with otherwise than it was begun: no step that was taken depends on it
FREE = ("epochs", "patience", "checkpoint_every", "workers", "keep", "timeout", "threads")


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
        accumulate: batches a step: their gradients add up to that of one batch of all their samples.
        clip: the largest norm that the gradients of a step may have, all together; None for any.
        ema: decay of an exponential average of the weights, 0.999 for example. The averages are what is evaluated,
            kept as the best and exported. None for the weights themselves.
        patience: stop after so many epochs without a better one; None for never.
        amp: "bf16" or "fp16": compute the forward pass in that type where `ox.autocast` does (fp16 with a gradient
            scaler); evaluation stays as the exported model will compute. None for float32.
        keep: how many of the newest checkpoints are kept, besides the best: to go on from when a disk damages the last.
        workers: processes that make batches; 0 for this one.
        max_steps: end after so many steps, if the epochs have not ended before; None for the epochs alone.
        steps_per_epoch: steps that make an epoch: what an endless stream needs. The data go on where the epoch before
            stopped, and begin anew when they are through. None for once through the data.
        drop_last: leave out a last batch that is not full.
        timeout: seconds to wait for a batch of a worker, or for another process; None for as long as it lives, and for
            what `ox launch` waits.
        threads: of this process; None for as many as can run.
    """

    epochs: int
    batch_size: int
    lr: float
    seed: int = 0
    device: str = "cpu"
    limit: int | None = None
    checkpoint_every: float = 30.0
    accumulate: int = 1
    clip: float | None = None
    ema: float | None = None
    patience: int | None = None
    amp: str | None = None
    workers: int = 0
    keep: int = 2
    max_steps: int | None = None
    steps_per_epoch: int | None = None
    drop_last: bool = False
    timeout: float | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        lows = {"epochs": 1, "batch_size": 1, "limit": 1, "accumulate": 1, "patience": 1, "workers": 0}
        lows |= {"max_steps": 1, "steps_per_epoch": 1, "threads": 1, "keep": 1}
        for name, least in lows.items():
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < least):
                raise ArgumentError(f"{name} must be a whole number of at least {least}", got=repr(value))
        if type(self.seed) is not int or not 0 <= self.seed < 2**63:
            raise ArgumentError("seed must be a whole number from 0 to 2^63 - 1", got=repr(self.seed))
        for name, low in (("lr", 0.0), ("checkpoint_every", -1.0), ("clip", 0.0), ("timeout", 0.0)):
            value = getattr(self, name)
            if value is None and name in ("clip", "timeout"):
                continue
            if type(value) not in (int, float) or not math.isfinite(value) or value <= low:
                raise ArgumentError(f"{name} must be a number above 0", got=repr(value))
        if self.ema is not None and (type(self.ema) is not float or not 0 < self.ema < 1):
            raise ArgumentError("ema must be a number between 0 and 1", got=repr(self.ema), hint="0.999")
        if type(self.drop_last) is not bool:
            raise ArgumentError("drop_last is True or False", got=repr(self.drop_last))
        if self.amp not in (None, "bf16", "fp16"):
            raise ArgumentError(f"amp knows no type {self.amp!r}", expected="bf16 or fp16")
        if self.device not in ("cpu", "cuda", "auto"):
            raise ArgumentError("there is no such device", expected="cpu, cuda or auto", got=repr(self.device))

    @classmethod
    def of(cls, defaults: Mapping[str, Any], **flags: Any) -> Options:
        """The defaults, but for the flags that are not None."""
        return cls(**{**defaults, **{name: value for name, value in flags.items() if value is not None}})

    def to_table(self) -> dict[str, Any]:
        """Those that are set, for config.toml."""
        return {name: value for name, value in asdict(self).items() if value is not None}
