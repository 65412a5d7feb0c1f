"""The options of a training run."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ox.errors import ArgumentError

# options that may change when a run is resumed: earlier steps do not depend on them
CHANGEABLE = ("epochs", "patience", "checkpoint_every", "workers", "keep", "timeout", "threads")


@dataclass(frozen=True)
class TrainConfig:
    """The options of a run, in addition to the recipe file.

    Args:
        epochs: passes over the training data.
        batch_size: samples per batch.
        lr: learning rate, an argument of the recipe's optimizer and scheduler.
        seed: seed of all random numbers: initial weights, order of samples, augmentation.
        device: "cpu", "cuda", "cuda:1" or "auto": CUDA if it works.
        limit: use only the first `limit` samples of each dataset; None for all.
        checkpoint_every: seconds between checkpoints within an epoch; one is written after every epoch anyway.
        accumulate: batches per step (gradient accumulation).
        clip: the maximal norm of all gradients of a step together; None: no clipping.
        ema: decay of an exponential moving average of the weights, for example 0.999. The averaged weights are
            evaluated, saved as the best and exported. None: no average.
        patience: stop after this number of epochs without improvement; None: never.
        amp: "bf16" or "fp16": mixed precision in the forward pass of training, with `ox.autocast` (fp16 with a gradient
            scaler). Evaluation uses float32, like the exported model. None: float32.
        keep: how many of the newest checkpoints to keep besides the best, in case the last one is damaged.
        workers: number of worker processes that make batches; 0: this process makes them.
        max_steps: stop after this number of steps; None: no limit.
        steps_per_epoch: steps per epoch, needed for an endless stream. An epoch continues in the data where the last
            one stopped, and starts again at their end. None: one pass over the data.
        drop_last: leave out a last batch that is not full.
        timeout: seconds to wait for a batch of a worker, or for another rank; None: as long as the worker is alive, and
            the timeout of `ox launch`.
        threads: threads of this process; None: as many as can run.
        compile: record forward, backward and update with `ox.compile`, and run them as graphs. A `step` of the recipe
            stays eager.
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
    compile: bool = False

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
        for name in ("drop_last", "compile"):
            if type(getattr(self, name)) is not bool:
                raise ArgumentError(f"{name} is True or False", got=repr(getattr(self, name)))
        if self.amp not in (None, "bf16", "fp16"):
            raise ArgumentError(f"amp has no type {self.amp!r}", expected="bf16 or fp16")
        if not isinstance(self.device, str) or not re.fullmatch(r"cpu|auto|cuda(:\d{1,4})?", self.device, re.ASCII):
            expected = "cpu, cuda, cuda:1 or auto"
            raise ArgumentError("there is no such device", expected=expected, got=repr(self.device))

    @classmethod
    def from_defaults(cls, defaults: Mapping[str, Any], **flags: Any) -> TrainConfig:
        """The `defaults` of a recipe, replaced by the flags that are not None."""
        return cls(**{**defaults, **{name: value for name, value in flags.items() if value is not None}})

    def to_table(self) -> dict[str, Any]:
        """The options that are not None, for config.toml."""
        return {name: value for name, value in asdict(self).items() if value is not None}
