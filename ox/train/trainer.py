"""A recipe at work: model, optimizer, data and random numbers together, one step at a time, with all of its state.

Nothing here is needed to train: `Trainer` holds what one would write by hand in the order in which one would write it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

import ox.random
from ox.data import DataLoader, Subset
from ox.errors import RecipeError
from ox.random import Generator
from ox.train import chance
from ox.train.evaluate import Result, evaluate
from ox.train.metrics import metric_of
from ox.train.nonfinite import diagnose
from ox.train.options import Options
from ox.train.progress import Criterion, Progress
from ox.train.recipe import Data, Recipe
from ox.train.update import Update
from ox.train.weights import load_model

EVALUATION_BATCH = 256
Batch = tuple[Any, ...]


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
        self.metrics = [metric_of(wanted) for wanted in recipe.optional("metrics") or ()]
        self.criterion = Criterion(recipe.optional("best"), self.metrics)
        chance.seed(options.seed)
        self.device = _device(options.device)
        data = recipe.data() if recipe.base is not None else None
        self.model = recipe.model(data).to(self.device)
        self.model.train()
        self.data = _limited(data or recipe.data(), options.limit)
        # a stream of its own for each purpose: augmenting more must not change the order of the samples
        self.order = Generator(options.seed + 1)
        self.augmentation = Generator(options.seed + 2)
        self.loader = DataLoader(
            self.data.train,
            batch_size=options.batch_size,
            shuffle=True,
            generator=self.order,
            num_workers=options.workers,
        )
        self.optimizer = self._optimizer()
        self.steps_an_epoch = -(-len(self.loader) // options.accumulate)
        self.steps = options.epochs * self.steps_an_epoch
        scheduler = recipe.optional("scheduler")
        self.scheduler = scheduler(self.optimizer, options.lr, self.steps) if scheduler else None
        self.update = Update(self.model, self.optimizer, self.scheduler, options, self.device)
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

    @property
    def finished(self) -> bool:
        """Whether all epochs are over, or none was better for too long."""
        progress, patience = self.progress, self.options.patience
        waited = 0 if progress.best is None else progress.epoch - progress.best["epoch"]
        return progress.epoch >= self.options.epochs or (patience is not None and waited >= patience)

    def batches(self) -> Iterator[Batch]:
        """The batches that are left of this epoch, augmented."""
        augment = self.recipe.optional("augment")
        for batch in self.loader:
            yield augment(batch, self.augmentation) if augment else batch

    def groups(self) -> Iterator[list[Batch]]:
        """The same, as many together as a step takes; the last group of an epoch may be smaller."""
        batches = self.batches()
        while group := list(islice(batches, self.options.accumulate)):
            yield group

    def _placed(self, batch: Any) -> Batch:
        return tuple(batch) if self.device == "cpu" else tuple(x.to(self.device) for x in batch)

    def loss(self, model: Any, batch: Batch) -> tuple[Any, Any]:
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

    def step(self, *batches: Batch) -> float:
        """One step: forward and backward of each batch, then one update. Returns the loss, the mean over all samples.

        Several batches give the gradients of one of all their samples: each weighs as much as it has samples.

        Raises:
            TrainError: the loss is NaN or infinite; nothing was updated.
        """
        with np.errstate(all="ignore"):  # what is not finite is found below, and its cause named
            return self._step([self._placed(batch) for batch in batches])

    def _step(self, batches: list[Batch]) -> float:
        total, loss_sum, running = sum(len(batch[-1]) for batch in batches), 0.0, Result()
        for i, batch in enumerate(batches):
            loss, value, outputs = self._forward(batch)
            if i == 0:
                self.optimizer.zero_grad()
            rows = len(batch[-1])
            self.update.backward(loss if rows == total else loss * (rows / total))
            running.add(value, outputs, batch[-1])
            loss_sum += value * (rows / total)
        self.update()
        self.progress.step += 1
        self.progress.running.join(running)
        return loss_sum

    def _forward(self, batch: Batch) -> tuple[Any, float, Any]:
        """Loss, its value and outputs of a training batch."""
        before = ox.random.get_state()
        loss, outputs = self._cast_loss(self.model, batch)
        value = float(loss.item())
        if not np.isfinite(value):
            ox.random.set_state(before)
            raise diagnose(self.model, self._cast_loss, batch, value, f"step {self.progress.step + 1}")
        return loss, value, outputs

    def _cast_loss(self, model: Any, batch: Batch) -> tuple[Any, Any]:
        with self.update.casts():
            return self.loss(model, batch)

    def evaluate(self, part: Any, model: Any = None) -> Result:
        """Loss, right answers and the recipe's metrics on a dataset; draws no random numbers and changes nothing.

        Args:
            part: the dataset.
            model: default: the one that counts, with the averaged weights where the run keeps some.

        Raises:
            TrainError: the loss is NaN or infinite.
        """
        model = self.update.evaluated if model is None else model
        # without a tape, four times the batch takes no more memory than a step does
        batches = DataLoader(part, batch_size=min(EVALUATION_BATCH, 4 * self.options.batch_size))
        with np.errstate(all="ignore"):
            result = evaluate(model, self.loss, map(self._placed, batches), self.metrics)
        if not np.isfinite(result.loss):
            model.eval()
            for batch in map(self._placed, batches):
                value = float(self.loss(model, batch)[0].item())
                if not np.isfinite(value):
                    raise diagnose(model, self.loss, batch, value, f"validation after step {self.progress.step}")
        return result

    def close_epoch(self, rate: float) -> dict[str, Any]:
        """Validate, note the epoch's row in the history, and begin the next."""
        progress, validation = self.progress, self.evaluate(self.data.validation)
        progress.epoch += 1
        row = {
            "epoch": progress.epoch,
            "step": progress.step,
            "loss": progress.running.loss,
            "accuracy": progress.running.accuracy,
            "validation_loss": validation.loss,
            "validation_accuracy": validation.accuracy,
            **{f"validation_{name}": value for name, value in validation.metrics.items()},
            "lr": self.lr,
            "samples_per_second": rate,
            "seconds": progress.seconds,
        }
        sample = self.sample()
        if sample is not None:
            row["sample"] = sample
        progress.close_epoch(row, self.criterion)
        return row

    def sample(self) -> str | None:
        """What the recipe's `sample` shows of the model; None without one. Training goes on as if nothing was drawn."""
        from ox.autograd import no_grad

        show, model = self.recipe.optional("sample"), self.update.evaluated
        if show is None:
            return None
        training = model.training
        model.eval()
        try:
            with no_grad(), chance.kept():
                return str(show(model))
        finally:
            model.train(training)

    # -- everything that is needed to go on ---------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """All state, as `ox.save` takes it."""
        order, augmentation = self.order.get_state(), self.augmentation.get_state()
        return {
            "model": self.model.state_dict(),
            **self.update.state_dict(),
            "random": {**chance.get_state(), "order": order, "augmentation": augmentation},
            "loader": self.loader.state_dict(),
            "progress": self.progress.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave.

        Raises:
            LoadError: it belongs to another architecture; the keys that differ are listed.
        """
        load_model(self.model, state["model"])
        self.update.load_state_dict(state)
        self.loader.load_state_dict(state["loader"])
        drawn = state["random"]
        chance.set_state(drawn)
        self.order.set_state(drawn["order"])
        self.augmentation.set_state(drawn["augmentation"])
        self.progress = Progress.of(state["progress"])


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
