"""A recipe at work: model, optimizer, data and random numbers together, one step at a time, with all of its state.

Nothing here is needed to train: `Trainer` holds what one would write by hand in the order in which one would write it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from ox.settings import set_num_threads
from ox.train import chance, setup
from ox.train.datasets import length
from ox.train.evaluate import Result
from ox.train.feed import Batch, Feed
from ox.train.fingerprint import facts
from ox.train.measure import training_loss, validation_loss
from ox.train.metrics.named import metrics_of
from ox.train.options import Options
from ox.train.plain import of_objects
from ox.train.progress import Criterion, Progress
from ox.train.recipe import Recipe
from ox.train.step import Step
from ox.train.team import team
from ox.train.update import Update
from ox.train.validation import validate
from ox.train.weights import load_model

if TYPE_CHECKING:
    from ox.train.loggers import Logger
    from ox.train.show import Silent

EVALUATION_BATCH = 256


class Trainer:
    """Takes the steps of a recipe, or of what you have already:

        trainer = Trainer(model, nn.CrossEntropyLoss(), optimizer, train_data, validation_data, epochs=5)
        result = trainer.fit("runs/mine")

    Args:
        model: an `ox.nn.Module`; it ends with the best weights. Or a recipe, with `Options` and nothing else.
        loss: called as loss(outputs, targets).
        optimizer: an optimizer, or a function (model, lr) that makes one; None is AdamW with `lr`. Or several, in a
            tuple, list or dict.
        train_data: a dataset, inputs first, target last, or dicts; a tuple of arrays of one length; an
            `IterableDataset`.
        validation_data: the same, to choose the best epoch by; or the share of `train_data` to set aside for that; None
            for none: then the last epoch is the best.
        held_back: evaluated once, at the end, with the best weights.
        scheduler: a scheduler, or a function (optimizer, lr, steps); stepped with the optimizer, one that watches a
            figure (`ReduceLROnPlateau`) after each epoch. Or several.
        collate: makes a batch of a list of samples.
        sampler, batch_sampler: an iterable of indices, or of lists of indices, or a function (dataset) that makes one.
        augment, step, validate, sample, metrics, best, labels: as on a recipe's page.
        options: the fields of `Options`: epochs, batch_size, lr, seed, device, accumulate, clip, ema, patience, ...

    Raises:
        ArgumentError: something is missing or wrong.
        RecipeError: the page's functions do not give what they should.
        DeviceError: the device is not there.
    """

    @overload
    def __init__(self, recipe: Recipe, options: Options, /) -> None: ...

    @overload
    def __init__(
        self,
        model: Any,
        loss: Callable[[Any, Any], Any] | None = None,
        optimizer: Any = None,
        train_data: Any = None,
        validation_data: Any = 0.1,
        held_back: Any = None,
        *,
        scheduler: Any = None,
        collate: Callable[[list[Any]], Any] | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        augment: Callable[..., Any] | None = None,
        step: Callable[..., Any] | None = None,
        validate: Callable[..., Any] | None = None,
        metrics: Sequence[Any] = (),
        best: str | None = None,
        sample: Callable[[Any], Any] | None = None,
        labels: Sequence[str] | None = None,
        **options: Any,
    ) -> None: ...

    def __init__(self, *given: Any, **named: Any) -> None:
        recipe: Recipe
        options: Options
        recipe, options = given if given and isinstance(given[0], Recipe) else of_objects(*given, **named)
        self.recipe, self.options = recipe, options
        if options.threads is not None:
            set_num_threads(options.threads)
        self.metrics = metrics_of(recipe.optional("metrics"))
        self.criterion = Criterion(recipe.optional("best"), self.metrics)
        self.team = team()
        chance.seed(options.seed)
        self.device = _device(options.device)
        data = recipe.data() if recipe.base is not None else None
        self.model = recipe.model(data).to(self.device)
        self.model.train()
        self.data = (data or recipe.data()).first(options.limit)
        self.team.check(self._told())
        self.collate = recipe.function("collate")
        setup.check(recipe, options, self.data)
        setup.shape_lazy(recipe, self.model, self.data, self.device)
        sampler = setup.sampler(recipe, options, self.data.train, self.team)
        self.feed = Feed(self.data.train, options, setup.augment(recipe), self.device, self.team, self.collate, sampler)
        self.steps = setup.steps(self.feed, options)
        self.optimizer = setup.optimizer(recipe, self.model, options.lr)
        self.scheduler = setup.scheduler(recipe, self.optimizer, options.lr, self.steps)
        self.update = Update(self.model, self.optimizer, self.scheduler, options, self.device)
        self.network = self.team.wrapped(self.model, recipe.optional("step") is not None)  # what a step calls
        if recipe.updates:
            self.team.averages(self.model, self.update.optimizers)
        self._step = Step(self)
        if not self.team.first:
            chance.seed(self.team.seed(options.seed))  # every rank drops out others
        self.progress = Progress()
        self.facts = facts(self)

    def _told(self) -> dict[str, Any]:
        """What all ranks must have been told alike."""
        sizes = {f"length of the {name} data": length(part) for name, part in self.data.parts().items()}
        return {"page": self.recipe.sha256[:12], **self.options.to_table(), **sizes}

    def fit(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        resume: bool = False,
        show: Silent | None = None,
        loggers: Sequence[Logger] = (),
    ) -> dict[str, Any]:
        """Train to the end, choose the best epoch, evaluate it on what is held back; the model has its weights then.

        Args:
            folder: where the run is kept: checkpoints, figures, curves; None for nowhere.
            resume: go on with the run in `folder`, if there is one. So a script that may be killed and started again
                says ``fit(folder, resume=True)`` and nothing else; a run that is finished only gives its result.
            show: who shows what goes on: `ox.train.show.Terminal()`; None is silent.
            loggers: told besides the folder's own.

        Returns:
            the best epoch's row under ``best``, loss and metrics under ``held_back``.

        Raises:
            TrainError: there is a run in the folder, or it was begun with other options, optimizer, loss or data; the
                loss is not finite; the disk refuses.
            Interrupted: Ctrl-C or SIGTERM where there is a folder.
        """
        from ox.train.session import fit_in

        return fit_in(self, folder, resume, show, loggers)

    @property
    def lr(self) -> float:
        return float(self.update.optimizers[0].param_groups[0]["lr"])

    @property
    def parameters(self) -> int:
        """How many numbers the model learns."""
        return sum(p.array.size for p in self.model.parameters() if p.requires_grad)

    @property
    def finished(self) -> bool:
        """Whether all epochs or steps are over, or no epoch was better for too long."""
        progress, patience = self.progress, self.options.patience
        waited = 0 if progress.best is None else progress.epoch - progress.best["epoch"]
        return (
            progress.epoch >= self.options.epochs
            or (self.stepped_out and not progress.running.count)
            or (patience is not None and waited >= patience)
        )

    @property
    def stepped_out(self) -> bool:
        """Whether there were as many steps as there may be."""
        return self.options.max_steps is not None and self.progress.step >= self.options.max_steps

    def batches(self) -> Iterator[Batch]:
        """The batches that are left of this epoch, augmented."""
        return self.feed.batches()

    def groups(self) -> Iterator[list[Batch]]:
        """The same in groups of as many as a step takes, until the epoch or the run has had its steps."""
        each = self.feed.steps
        groups = self.feed.groups(0 if each is None else self.progress.step - self.progress.epoch * each)
        while not self.stepped_out and (group := next(groups, None)) is not None:
            yield group

    def loss(self, model: Any, batch: Batch) -> tuple[Any, Any]:
        """The loss of a batch and the model's outputs: the recipe's own step, or `loss(model(*inputs), target)`."""
        return training_loss(self.recipe, model, batch, self.optimizer)

    def measure(self, model: Any, batch: Batch) -> tuple[Any, Any]:
        """The same for a batch to evaluate: the recipe's own `validate`, else what trains."""
        return validation_loss(self.recipe, model, batch)

    def step(self, *batches: Batch) -> float:
        """One step: forward and backward of each batch, then one update. Returns the loss, the mean over all samples.

        Several batches give the gradients of one of all their samples: each weighs as much as it has samples.

        Raises:
            TrainError: the loss is NaN or infinite; nothing was updated.
        """
        with np.errstate(all="ignore"):  # what is not finite is found below, and its cause named
            running = Result()
            loss = self._step([self.feed.placed(batch) for batch in batches], running)
        self.progress.step += 1
        self.progress.running.join(running)
        return loss

    def evaluate(self, part: Any, model: Any = None) -> Result:
        """Loss, right answers and the recipe's metrics on a dataset; draws no random numbers and changes nothing.

        Args:
            part: the dataset.
            model: default: the one that counts, with the averaged weights where the run keeps some.

        Raises:
            TrainError: the loss is NaN or infinite.
        """
        names = {id(of): f"{name} data" for name, of in self.data.parts().items()}
        result = validate(
            self.update.evaluated if model is None else model,
            self.measure,
            part,
            name=f"{names.get(id(part), 'data')} after step {self.progress.step}",
            # without a tape, four times the batch takes no more memory than a step does
            batch_size=min(EVALUATION_BATCH, 4 * self.options.batch_size),
            placed=self.feed.placed,
            metrics=self.metrics,
            collate=self.collate,
            rank=self.team.rank,
            size=self.team.size,
        )
        return self.team.joined(result, self.metrics)

    def close_epoch(self, rate: float) -> dict[str, Any]:
        """Validate, note the epoch's row in the history, and begin the next."""
        progress, part = self.progress, self.data.validation
        validation = None if part is None else self.evaluate(part)
        running = self.team.joined(progress.running)
        progress.epoch += 1
        row = {
            "epoch": progress.epoch,
            "step": progress.step,
            "loss": running.loss,
            "accuracy": running.accuracy,
            "validation_loss": None if validation is None else validation.loss,
            "validation_accuracy": None if validation is None else validation.accuracy,
            **{f"validation_{name}": value for name, value in (validation.metrics if validation else {}).items()},
            "lr": self.lr,
            "samples_per_second": rate * self.team.size,
            "seconds": progress.seconds,
        }
        sample = self.sample()
        if sample is not None:
            row["sample"] = sample
        progress.close_epoch(row, self.criterion)
        self.update.close_epoch(lambda mode: self.criterion.figure(row, mode))
        return row

    def sample(self, model: Any = None) -> str | None:
        """What the recipe's `sample` shows of the model; None without one. Training goes on as if nothing was drawn.

        Args:
            model: as in `evaluate`.
        """
        from ox.autograd import no_grad

        show, model = self.recipe.function("sample"), self.update.evaluated if model is None else model
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
        feed, random = self.feed.state_dict(), chance.get_state()
        own = {"random": random, "augmentation": feed["augmentation"], "running": asdict(self.progress.running)}
        return {
            "model": self.model.state_dict(),
            **self.update.state_dict(),
            "random": {**random, **{name: feed[name] for name in ("order", "augmentation", "stream")}},
            "loader": feed["loader"],
            "progress": self.progress.state_dict(),
            "ranks": self.team.gathered(own),
            "options": self.options.to_table(),
            "facts": self.facts,
            "page": self.recipe.text,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave. Where that was of other epochs, the scheduler is taken to the same step of
        the new schedule.

        Raises:
            LoadError: it belongs to another architecture; the keys that differ are listed.
        """
        own = self.team.own(state)
        load_model(self.model, state["model"])
        epochs = state.get("options", {}).get("epochs", self.options.epochs)
        # another number of epochs, another schedule: the rates from here on are those of the new one
        self.update.load_state_dict(state, state["progress"]["step"] if epochs != self.options.epochs else None)
        chance.set_state(state["random"])
        self.feed.load_state_dict({**state["random"], "loader": state["loader"]})
        self.progress = Progress.of(state["progress"])
        if own is not None:
            chance.set_state(own["random"])
            self.feed.augmentation.set_state(own["augmentation"])
            self.progress.running = Result(**own["running"])


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
