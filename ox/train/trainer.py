"""A recipe at work: model, optimizer, data and random numbers together, one step at a time, with all of its state.

Nothing here is needed to train: `Trainer` holds what one would write by hand in the order in which one would write it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, overload

import numpy as np

import ox.random
from ox.errors import DistributedError, OxError, RecipeError, TrainError
from ox.settings import set_num_threads
from ox.train import chance
from ox.train.batch import is_tensor, rows, target_of, tensors
from ox.train.culprit import blame
from ox.train.datasets import is_stream, length
from ox.train.evaluate import Result
from ox.train.feed import Batch, Feed
from ox.train.measure import training_loss, validation_loss
from ox.train.metrics import Metric
from ox.train.metrics.named import metrics_of
from ox.train.nonfinite import diagnose
from ox.train.options import Options
from ox.train.plain import of_objects
from ox.train.progress import Criterion, Progress
from ox.train.recipe import Recipe
from ox.train.sampler import ReplayedSampler
from ox.train.team import team
from ox.train.update import Update, several
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
        self.feed = Feed(
            self.data.train, options, self._augment(), self.device, self.team, self.collate, self._sampler()
        )
        if self.feed.steps == 0:
            raise RecipeError(
                "an epoch has no step",
                got=f"{len(self.data.train)} samples, batch_size {options.batch_size}, drop_last={options.drop_last}",
                hint="a smaller --batch-size, or drop_last=False",
            )
        self.optimizer = self._optimizer()
        self.steps = self._steps()
        self.scheduler = self._scheduler()
        self.update = Update(self.model, self.optimizer, self.scheduler, options, self.device)
        self.own_updates = recipe.updates
        self._check_validation()
        self.network = self.team.wrapped(self.model, recipe.optional("step") is not None)  # what a step calls
        if self.own_updates:
            self.team.averages(self.model, self.update.optimizers)
        if not self.team.first:
            chance.seed(self.team.seed(options.seed))  # every rank drops out others
        self.progress = Progress()

    def _told(self) -> dict[str, Any]:
        """What all ranks must have been told alike."""
        sizes = {f"length of the {name} data": length(part) for name, part in self.data.parts().items()}
        return {"page": self.recipe.sha256[:12], **self.options.to_table(), **sizes}

    def _optimizer(self) -> Any:
        make = self.recipe.function("optimizer")
        if make is not None:
            made = make(self.model, self.options.lr)
            usable = bool(several(made)) and all(hasattr(one, "param_groups") for one in several(made))
            return self.recipe.gave("optimizer", made, usable, "an optimizer")
        from ox.optim import AdamW

        return AdamW(self.model.parameters(), lr=self.options.lr)

    def _scheduler(self) -> Any:
        make = self.recipe.function("scheduler")
        if make is None:
            return None
        try:
            made = make(self.optimizer, self.options.lr, self.steps)
        except OxError as error:
            if self.steps is None:
                error.hint = "steps is None, for the stream has no length: max_steps or steps_per_epoch in defaults"
            raise
        usable = bool(several(made)) and all(hasattr(one, "step") for one in several(made))
        return self.recipe.gave("scheduler", made, usable, "a scheduler")

    def _steps(self) -> int | None:
        """Steps in all; None where only the end of a stream says."""
        each, most = self.feed.steps, self.options.max_steps
        if each is None:
            return most
        return min(self.options.epochs * each, most or self.options.epochs * each)

    def _sampler(self) -> ReplayedSampler | None:
        """The page's own sampler, if there is one."""
        made = [(self.recipe.function(name), name == "batch_sampler") for name in ("sampler", "batch_sampler")]
        found = [(make, batched) for make, batched in made if make is not None]
        if not found:
            return None
        if len(found) > 1 or is_stream(self.data.train):
            why = "a stream has no indices" if len(found) < 2 else "a page has a sampler or a batch_sampler"
            raise RecipeError(f"{why}: {self.recipe.path.name} cannot be sampled so", hint="one of them, or none")
        ((make, batched),) = found
        options, count = self.options, self.options.steps_per_epoch
        if count is not None:
            count *= options.accumulate * self.team.size * (1 if batched else options.batch_size)
        return ReplayedSampler(make(self.data.train), self.team, batched, count)

    def _check_validation(self) -> None:
        """Raise RecipeError where the options, or what the page defines, do not go with a step that updates itself, or
        with data without validation."""
        options, data = self.options, self.data
        if self.own_updates:
            given = {"clip": options.clip, "amp='fp16'": options.amp == "fp16", "accumulate": options.accumulate > 1}
            if wrong := [name for name, is_given in given.items() if is_given]:
                raise RecipeError(
                    f"{wrong[0]} does not go with step(model, batch, optimizers), which updates by itself",
                    hint="do it in the step",
                )
            measured = self.recipe.optional("validate") or self.recipe.optional("loss")
            if measured is None and (data.validation is not None or data.held_back is not None):
                raise RecipeError(
                    "step(model, batch, optimizers) only trains: nothing says what to measure on the validation data",
                    expected="validate(model, batch) on the page, which returns (loss, outputs), or a loss",
                    hint="return train, None in data(), where there is nothing to measure",
                )
        if data.validation is None and (options.patience is not None or self.recipe.optional("best") is not None):
            given_name = "best" if options.patience is None else "patience"
            raise RecipeError(f"{given_name} needs validation data", got="data() without any")

    def _augment(self) -> Callable[..., Any] | None:
        own = self.recipe.function("augment")
        if own is None:
            return None

        def augment(batch: Batch, generator: ox.random.Generator) -> Any:
            made = own(batch, generator)
            usable = bool(tensors(made))
            return self.recipe.gave("augment", made, usable, "a batch, the tensors that it was given")

        return augment

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
            TrainError: there is a run in the folder, or it was begun with other options; the loss is not finite; the
                disk refuses.
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
            placed, running = [self.feed.placed(batch) for batch in batches], Result()
            if self.own_updates:
                loss = self._own_step(placed, running)
            elif self.update.closure:
                loss = self._closed_step(placed, running)
            else:
                loss = self._gradients(placed, running)
                self.update()
        self.progress.step += 1
        self.progress.running.join(running)
        return loss

    def _closed_step(self, batches: list[Batch], running: Result) -> float:
        """A step of an optimizer that asks for loss and gradients as often as it likes."""
        losses: list[float] = []

        def closure() -> float:
            # only the first is the loss of these weights; where a line search looks, the loss may be anything
            losses.append(self._gradients(batches, Result() if losses else running, checked=not losses))
            self.update.clip()
            return self.team.mean(losses[-1])

        self.update(closure)
        return losses[0]

    def _own_step(self, batches: list[Batch], running: Result) -> float:
        """A step that does backward and updates by itself."""
        before = self.progress.step
        for batch in batches:
            try:
                loss, outputs = self._cast_loss(self.network, batch)
            except (TrainError, DistributedError):
                raise
            except Exception as error:
                number, _ = self.feed.indices()
                error.add_note(f"in batch {number} of epoch {self.progress.epoch + 1}")
                raise
            value = float(loss)
            if not np.isfinite(value):
                raise TrainError(
                    f"the loss is {value} at step {before + 1}",
                    extra={"cause": "the page's own step, which has updated the weights already"},
                    hint="a smaller --lr, or ox.nn.utils.clip_grad_norm_ in the step",
                )
            running.add(value, outputs, batch)
        self.update.close()
        return running.loss

    def _gradients(self, batches: list[Batch], running: Result, checked: bool = True) -> float:
        """Forward and backward of each batch. Returns the mean loss over all samples.

        Args:
            checked: a loss that is not finite is an error.
        """
        counts, loss_sum = [rows(batch) for batch in batches], 0.0
        total = sum(counts)
        for i, batch in enumerate(batches):
            with self.team.quiet(self.network, last=i == len(batches) - 1):
                try:
                    loss, value, outputs = self._forward(batch, len(batches) - i, checked)
                except (TrainError, DistributedError):
                    raise
                except Exception as error:
                    raise self._blamed(error, batch, len(batches) - i) from error
                if i == 0:
                    self.update.zero_grad()
                share = counts[i] / total
                self.update.backward(loss if counts[i] == total else loss * share)
            running.add(value, outputs, batch)
            loss_sum += value * share
        self.team.average(self.model)
        return loss_sum

    def _forward(self, batch: Batch, back: int, checked: bool) -> tuple[Any, float, Any]:
        """Loss, its value and outputs of a training batch."""
        before = ox.random.get_state()
        loss, outputs = self._cast_loss(self.network, batch)
        value = float(loss)
        if self.progress.step == 0:
            self._check_labels(outputs, target_of(batch))
        if checked and not np.isfinite(value):
            ox.random.set_state(before)
            when = f"step {self.progress.step + 1}"
            raise diagnose(self.model, self._cast_loss, batch, value, when, self.feed.indices(back)[1])
        return loss, value, outputs

    def _check_labels(self, outputs: Any, targets: Any) -> None:
        """One label a class, where outputs and targets are seen to be of classes."""
        labels = self.recipe.labels
        shape: tuple[int, ...] = getattr(outputs, "shape", ())
        if not is_tensor(targets):
            return
        classes = len(shape) == 2 and shape[1] > 1 and targets.ndim == 1 and not targets.is_floating_point()
        if labels is not None and classes and len(labels) != shape[1]:
            raise RecipeError(
                f"the labels of {self.recipe.path.name} do not fit the model's outputs",
                expected=f"{shape[1]} labels, one a class",
                got=f"{len(labels)}: {', '.join(labels[:4])}{', ...' if len(labels) > 4 else ''}",
            )

    def _blamed(self, error: Exception, batch: Batch, back: int) -> Exception:
        """The error of a training batch, with the samples that are to blame for it."""
        number, indices = self.feed.indices(back)
        when = f"batch {number} of epoch {self.progress.epoch + 1}" if number else "a batch of your own"
        return blame(error, self.loss, self.model, batch, when, indices)

    def _cast_loss(self, model: Any, batch: Batch) -> tuple[Any, Any]:
        with self.update.casts():
            return self.loss(model, batch)

    def evaluate(self, part: Any, model: Any = None, also: Sequence[Metric] = ()) -> Result:
        """Loss, right answers and the recipe's metrics on a dataset; draws no random numbers and changes nothing.

        Args:
            part: the dataset.
            model: default: the one that counts, with the averaged weights where the run keeps some.
            also: metrics besides the recipe's.

        Raises:
            TrainError: the loss is NaN or infinite.
        """
        metrics = [*self.metrics, *also]
        names = {id(of): f"{name} data" for name, of in self.data.parts().items()}
        result = validate(
            self.update.evaluated if model is None else model,
            self.measure,
            part,
            name=f"{names.get(id(part), 'data')} after step {self.progress.step}",
            # without a tape, four times the batch takes no more memory than a step does
            batch_size=min(EVALUATION_BATCH, 4 * self.options.batch_size),
            placed=self.feed.placed,
            metrics=metrics,
            collate=self.collate,
            rank=self.team.rank,
            size=self.team.size,
        )
        return self.team.joined(result, metrics)

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
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave.

        Raises:
            LoadError: it belongs to another architecture; the keys that differ are listed.
        """
        own = self.team.own(state)
        load_model(self.model, state["model"])
        self.update.load_state_dict(state)
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
