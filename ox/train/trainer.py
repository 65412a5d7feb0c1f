"""A recipe at work: model, optimizer, data and random numbers together, one step at a time, with all of its state.

Nothing here is needed to train: `Trainer` holds what one would write by hand in the order in which one would write it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

import ox.random
from ox.data import DataLoader, Subset
from ox.dtypes import bfloat16
from ox.errors import LoadError, RecipeError
from ox.random import Generator
from ox.train.evaluate import Result, evaluate
from ox.train.nonfinite import diagnose
from ox.train.options import Options
from ox.train.recipe import Data, Recipe

EVALUATION_BATCH = 256


@dataclass
class Progress:
    """How far a run has come. `epoch` counts whole ones; the sums are of the epoch under way."""

    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    running: Result = field(default_factory=Result)
    history: list[dict[str, Any]] = field(default_factory=list)  # a row an epoch, as in metrics.jsonl
    best: dict[str, Any] | None = None  # the row of the best epoch on validation


class Trainer:
    """Builds everything that a recipe asks for and takes the steps.

    Args:
        recipe: the page.
        options: what to do with it.

    Raises:
        RecipeError: the page's functions do not give what they should.
        DeviceError: the device is not there.
    """

    def __init__(self, recipe: Recipe, options: Options) -> None:
        self.recipe, self.options = recipe, options
        ox.random.manual_seed(options.seed)
        # ox draws from its own generators only; a page may call the other two all the same
        random.seed(options.seed)
        np.random.seed(options.seed % 2**32)
        self.device = _device(options.device)
        data = recipe.data() if recipe.base is not None else None
        self.model = recipe.model(data).to(self.device)
        self.model.train()
        self.data = _limited(data or recipe.data(), options.limit)
        # a stream of its own for each purpose: augmenting more must not change the order of the samples
        self.order = Generator(options.seed + 1)
        self.augmentation = Generator(options.seed + 2)
        self.loader = DataLoader(self.data.train, batch_size=options.batch_size, shuffle=True, generator=self.order)
        self.optimizer = self._optimizer()
        self.steps = options.epochs * len(self.loader)
        scheduler = recipe.optional("scheduler")
        self.scheduler = scheduler(self.optimizer, options.lr, self.steps) if scheduler else None
        self.progress = Progress()

    def _optimizer(self) -> Any:
        make = self.recipe.optional("optimizer")
        if make is not None:
            return make(self.model, self.options.lr)
        from ox.optim import AdamW

        return AdamW(self.model.parameters(), lr=self.options.lr)

    @property
    def lr(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    @property
    def parameters(self) -> int:
        """How many numbers the model learns."""
        return sum(p.array.size for p in self.model.parameters() if p.requires_grad)

    def batches(self) -> Iterator[tuple[Any, ...]]:
        """The batches that are left of this epoch, augmented and on the device."""
        augment = self.recipe.optional("augment")
        for batch in self.loader:
            yield self._placed(augment(batch, self.augmentation) if augment else batch)

    def _placed(self, batch: Any) -> tuple[Any, ...]:
        return tuple(batch) if self.device == "cpu" else tuple(x.to(self.device) for x in batch)

    def loss(self, model: Any, batch: tuple[Any, ...]) -> tuple[Any, Any]:
        """The loss of a batch and the model's outputs: the recipe's own step, or `loss(model(*inputs), target)`."""
        own = self.recipe.optional("step")
        if own is None:
            *inputs, targets = batch
            outputs = model(*inputs)
            return self.recipe.page.loss(outputs, targets), outputs
        result = own(model, batch)
        if not isinstance(result, tuple) or len(result) != 2:
            raise RecipeError(
                f"step() in {self.recipe.path.name} did not return a pair",
                expected="(loss, outputs), or (loss, None)",
                got=type(result).__name__,
            )
        return result

    def step(self, batch: tuple[Any, ...]) -> float:
        """One step: forward, backward, update. Returns the loss.

        Raises:
            TrainError: the loss is NaN or infinite; nothing was updated.
        """
        with np.errstate(all="ignore"):  # what is not finite is found below, and its cause named
            return self._step(batch)

    def _step(self, batch: tuple[Any, ...]) -> float:
        before = ox.random.get_state()
        loss, outputs = self.loss(self.model, batch)
        value = float(loss.item())
        if not np.isfinite(value):
            ox.random.set_state(before)
            raise diagnose(self.model, self.loss, batch, value, f"step {self.progress.step + 1}")
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()
        self.progress.step += 1
        self.progress.running.add(value, outputs, batch[-1])
        return value

    def evaluate(self, part: Any) -> Result:
        """Loss and right answers on a dataset; draws no random numbers and changes nothing.

        Raises:
            TrainError: the loss is NaN or infinite.
        """
        # without a tape, four times the batch takes no more memory than a step does
        batches = DataLoader(part, batch_size=min(EVALUATION_BATCH, 4 * self.options.batch_size))
        with np.errstate(all="ignore"):
            result = evaluate(self.model, self.loss, map(self._placed, batches))
        if not np.isfinite(result.loss):
            self.model.eval()
            for batch in map(self._placed, batches):
                value = float(self.loss(self.model, batch)[0].item())
                if not np.isfinite(value):
                    raise diagnose(self.model, self.loss, batch, value, f"validation after step {self.progress.step}")
        return result

    def close_epoch(self, rate: float) -> dict[str, Any]:
        """Validate, note the epoch's row in the history, and begin the next. Best is who is most often right, then
        who has the least loss; of equals the earlier."""
        progress, validation = self.progress, self.evaluate(self.data.validation)
        progress.epoch += 1
        row = {
            "epoch": progress.epoch,
            "step": progress.step,
            "loss": progress.running.loss,
            "accuracy": progress.running.accuracy,
            "validation_loss": validation.loss,
            "validation_accuracy": validation.accuracy,
            "lr": self.lr,
            "samples_per_second": rate,
            "seconds": progress.seconds,
        }
        progress.running = Result()
        progress.history.append(row)
        if progress.best is None or _merit(row) > _merit(progress.best):
            progress.best = row
        return row

    # -- everything that is needed to go on ---------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """All state, as `ox.save` takes it."""
        name, keys, *rest = np.random.get_state()
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict() if self.scheduler is not None else None,
            "random": {
                "default": ox.random.get_state(),
                "order": self.order.get_state(),
                "augmentation": self.augmentation.get_state(),
                "numpy": [name, keys, *rest],
                "python": list(random.getstate()),
            },
            "loader": self.loader.state_dict(),
            "progress": asdict(self.progress),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave.

        Raises:
            LoadError: it belongs to another architecture; the keys that differ are listed.
        """
        load_model(self.model, state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        self.loader.load_state_dict(state["loader"])
        drawn = state["random"]
        ox.random.set_state(drawn["default"])
        self.order.set_state(drawn["order"])
        self.augmentation.set_state(drawn["augmentation"])
        np.random.set_state(tuple(drawn["numpy"]))
        version, words, gauss = drawn["python"]
        random.setstate((version, tuple(words), gauss))
        progress = dict(state["progress"])
        self.progress = Progress(**{**progress, "running": Result(**progress["running"])})


def load_model(model: Any, state: dict[str, Any], where: str | None = None) -> None:
    """Put saved weights into a model.

    Raises:
        LoadError: names or shapes differ; lists the first of them.
    """
    own = model.state_dict()
    missing, unexpected = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    other = [
        f"{name} {_kind(state[name])} instead of {_kind(own[name])}"
        for name in own
        if name in state and _kind(own[name]) != _kind(state[name])
    ]
    if missing or unexpected or other:
        named = {"missing": missing, "unknown": unexpected, "differ": other}
        raise LoadError(
            "the checkpoint is of another architecture",
            where=where,
            extra={label: _some(keys) for label, keys in named.items() if keys},
            hint="the recipe that the run was made with: ox train --resume uses the run's own copy",
        )
    model.load_state_dict(state)


def _kind(x: Any) -> str:
    return (
        f"{'bfloat16' if x.dtype == bfloat16 else x.dtype} {list(x.shape)}" if hasattr(x, "shape") else type(x).__name__
    )


def _some(keys: list[str], most: int = 6) -> str:
    return ", ".join(keys[:most]) + (f" and {len(keys) - most} more" if len(keys) > most else "")


def _merit(row: dict[str, Any]) -> tuple[float, float]:
    accuracy = row["validation_accuracy"]
    return (0.0 if accuracy is None else accuracy, -row["validation_loss"])


def _limited(data: Data, limit: int | None) -> Data:
    if limit is None:
        return data

    def first(part: Any) -> Any:
        return part if part is None or len(part) <= limit else Subset(part, range(limit))

    return Data(first(data.train), first(data.validation), first(data.held_back))


def _device(name: str) -> str:
    """The device to compute on; "auto" is CUDA where it works. Raises DeviceError when "cuda" does not."""
    if name == "cpu":
        return "cpu"
    from ox.creation import zeros
    from ox.errors import DeviceError

    try:
        zeros(1).to("cuda")
    except DeviceError:
        if name == "auto":
            return "cpu"
        raise
    return "cuda"
