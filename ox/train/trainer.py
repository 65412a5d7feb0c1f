"""The trainer: what a training loop written by hand does, in the same order, one step at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from ox.tensors.settings import set_num_threads
from ox.train import global_batch, rng_state, trainer_state
from ox.train.batches import Batch, TrainBatches
from ox.train.evaluation import Result
from ox.train.loss import training_loss, validation_loss
from ox.train.loss_weight import batch_weights
from ox.train.metrics import metrics_of
from ox.train.ranks import current_ranks
from ox.train.recipe import setup
from ox.train.recipe.datasets import length
from ox.train.recipe.from_objects import recipe_from_objects
from ox.train.recipe.recipe import Recipe
from ox.train.run.fingerprint import facts
from ox.train.run.progress import Criterion, Progress
from ox.train.run.train_config import TrainConfig
from ox.train.step import Step
from ox.train.training_device import choose_device
from ox.train.update import Update, as_list
from ox.train.validation import validate

if TYPE_CHECKING:
    from ox.train.display import Silent
    from ox.train.loggers import Logger
    from ox.train.run.checkpoint_writer import CheckpointWriter
    from ox.train.run.run import Run

EVALUATION_BATCH = 256


class Trainer:
    """Trains a recipe, or your own model, loss, optimizer and data:

        trainer = Trainer(model, nn.CrossEntropyLoss(), optimizer, train_data, validation_data, epochs=5)
        result = trainer.fit("runs/mine")

    Args:
        model: an `ox.nn.Module`; after `fit` it has the best weights. Or a recipe, with a `TrainConfig` as the only
            other argument.
        loss: called as loss(outputs, targets).
        optimizer: an optimizer, or a function (model, lr) that returns one; default: AdamW with `lr`. Or several, in a
            tuple, list or dict.
        train_data: a dataset whose samples are tuples with the target last, or dicts; a tuple of arrays of one length;
            an `IterableDataset`.
        validation_data: the same; it chooses the best epoch. Or the fraction of `train_data` to use for validation.
            None: no validation, and the last epoch is the best.
        held_back: the test set: evaluated once, at the end, with the best weights.
        scheduler: a scheduler, or a function (optimizer, lr, steps) that returns one. It is stepped with the optimizer;
            one that needs a metric (`ReduceLROnPlateau`) after each epoch. Or several.
        collate: combines a list of samples into a batch.
        sampler, batch_sampler: an iterable of indices, or of lists of indices, or a function (dataset) that returns
            one.
        augment, step, validate, sample, metrics, best, labels: as in a recipe file.
        options: fields of `TrainConfig`: epochs, batch_size, lr, seed, device, accumulate, clip, ema, patience, ...
            A `seed` also seeds the generators of ox, NumPy and Python; without one, the run draws its seed from ox's.

    Raises:
        ArgumentError: an argument is missing or wrong.
        RecipeError: a function of the recipe returned a wrong value.
        DeviceError: the device is not available.
    """

    @overload
    def __init__(self, recipe: Recipe, options: TrainConfig, /) -> None: ...

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
        options: TrainConfig
        self.ranks = current_ranks()
        has_recipe, seeds_ranks = bool(given) and isinstance(given[0], Recipe), True
        self._seed_is_drawn = not has_recipe and named.get("seed") is None
        if self._seed_is_drawn:
            named["seed"], seeds_ranks = rng_state.draw_seed(self.ranks)
        recipe, options = given if has_recipe else recipe_from_objects(*given, **named)
        self.recipe, self.options = recipe.seeded(options.seed), options
        if options.threads is not None:
            set_num_threads(options.threads)
        self.metrics = metrics_of(recipe.optional("metrics"))
        self.criterion = Criterion(recipe.optional("best"), self.metrics)
        self.device = choose_device(options.device, self.ranks.size)
        # before the model: the same split for each architecture
        self._load_data()
        recipe = self.recipe
        if not self._seed_is_drawn:
            rng_state.seed(options.seed)
        self.model = recipe.model(self.all_data).to(self.device)
        self.model.train()
        self.ranks.check_equal(self._must_be_equal())
        self.collate = recipe.function("collate")
        self._batch_weight, self._validation_weight = batch_weights(recipe)
        setup.check(recipe, options, self.data)
        setup.shape_lazy(recipe, self.model, self.data, self.device)
        self._sampler = setup.sampler(recipe, options, self.data.train, self.ranks)
        self.begun = self.ranks.size  # on how many ranks the run began
        self.train_batches = self._make_batches()
        self.steps = setup.steps(self.train_batches, options)
        self.optimizer = setup.optimizer(recipe, self.model, options.lr)
        self._groups = [[dict(group) for group in one.param_groups] for one in as_list(self.optimizer)]
        self.update = self.make_update()
        self.network = self.ranks.wrap_model(self.model, recipe.optional("step") is not None)  # what a step calls
        if recipe.updates:
            self.ranks.average_before_step(self.model, self.update.optimizers)
        self._step = Step(self)
        # called on all ranks after each checkpoint: it takes the run folder of rank 0 elsewhere (`ox.ray.fit`)
        self.on_checkpoint: Callable[[], None] | None = None
        self.checkpoint_wanted: Callable[[], bool] | None = None  # called after each step, to save one now
        if seeds_ranks and not self.ranks.is_first:
            rng_state.seed(self.ranks.rank_seed(options.seed))  # different dropout masks on each rank
        self.progress = Progress()
        # the epochs and steps of one `fit`, and the epoch at which the last one began
        self.fit_epochs, self.fit_steps, self.first_epoch = options.epochs, options.max_steps, 0
        self.best_in_memory: CheckpointWriter | None = None  # of a `fit` without a folder
        self.facts = facts(self)

    def _load_data(self) -> None:
        """Loads the data. Those of a recipe file are described in its manifest, for the run folder."""
        self.all_data = self.recipe.data()
        self.data = self.all_data.first(self.options.limit)
        if self.recipe.text and (self.recipe.manifest is None or self.recipe.on_change != "error"):
            manifest = self.recipe.describe(self.all_data)
            self.recipe = replace(self.recipe, manifest=manifest, on_change="error")

    def _make_batches(self) -> TrainBatches:
        recipe, options, ranks = self.recipe, self.options, self.ranks
        sampler = self._sampler
        batched = sampler is not None and sampler.batched
        share = global_batch.share(options, self.begun, ranks.size, batched, recipe.updates)
        augment, begun = setup.augment(recipe), self.begun
        return TrainBatches(self.data.train, options, augment, self.device, ranks, share, begun, self.collate, sampler)

    def make_update(self) -> Update:
        self.scheduler = setup.scheduler(self.recipe, self.optimizer, self.options.lr, self.steps)
        return Update(self.model, self.optimizer, self.scheduler, self.options, self.device)

    def continue_run_of(self, begun: int, run: Run) -> None:
        """Before the first step: the run to resume began on this number of ranks. Each step keeps its samples, so the
        ranks get other batches, and the scheduler the steps of that run. The version of the random numbers is that of
        the run, and a seed that was not set, too.

        Raises:
            TrainError: the ranks cannot share the samples of a step evenly.
        """
        seed = run.options.seed if self._seed_is_drawn else self.options.seed
        same = (seed, run.random_stream) == (self.options.seed, self.recipe.random_stream)
        if begun == self.begun and same:
            return
        as_many, self.begun = begun == self.begun, begun
        if not same:
            self.options = replace(self.options, seed=seed)
            self.recipe = (
                self.recipe.with_data_as(run.recipe())
                if self.recipe.text
                else replace(self.recipe, random_stream=run.random_stream)
            )
            vars(self.recipe.page)["seed"] = seed
            self._load_data()
            self._sampler = setup.sampler(self.recipe, self.options, self.data.train, self.ranks)
        if self._sampler is not None and not as_many:
            self._sampler.continue_run_of(begun, self.options)
        self.train_batches = self._make_batches()
        self.steps = setup.steps(self.train_batches, self.options)
        self.reset_groups()
        self.update = self.make_update()
        self.facts = facts(self)

    def reset_groups(self) -> None:
        """The settings of the optimizers before a scheduler changed them."""
        for one, settings in zip(as_list(self.optimizer), self._groups, strict=True):
            for group, before in zip(one.param_groups, settings, strict=True):
                group.clear()
                group.update(before)

    def _must_be_equal(self) -> dict[str, Any]:
        """The settings that must be equal on all ranks."""
        sizes = {f"length of the {name} data": length(part) for name, part in self.data.parts().items()}
        content = {} if self.recipe.manifest is None else {"data": self.recipe.manifest.digest}
        return {"recipe file": self.recipe.sha256[:12], **self.options.to_table(), **sizes, **content}

    def fit(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        resume: bool = False,
        show: Silent | None = None,
        loggers: Sequence[Logger] = (),
    ) -> dict[str, Any]:
        """Trains all epochs, chooses the best one and evaluates it on the test set. Then the model has its weights.
        Another call trains for as many epochs more; the best is chosen from all.

        Args:
            folder: the run folder, with checkpoints, metrics and curves; None: nothing is written.
            resume: resume the run in `folder`, if there is one. A script that may be killed and restarted needs only
                ``fit(folder, resume=True)``. If the run has finished, its result is returned.
            show: prints the progress: `ox.train.display.Terminal()`; None: no output.
            loggers: additional loggers, besides those of the run folder.

        Returns:
            a dict with the row of the best epoch under ``best``, and loss and metrics on the test set under
            ``held_back``.

        Raises:
            TrainError: there is a run in the folder, or it was started with other options, optimizer, loss or data; the
                loss is not finite; a file cannot be written.
            Interrupted: Ctrl-C, SIGTERM or SIGHUP, if there is a folder.
        """
        from ox.train.run.session import fit_in

        return fit_in(self, folder, resume, show, loggers)

    @property
    def lr(self) -> float:
        return float(self.update.optimizers[0].param_groups[0]["lr"])

    @property
    def parameters(self) -> int:
        """The number of trainable parameters."""
        return sum(p.array.size for p in self.model.parameters() if p.requires_grad)

    @property
    def finished(self) -> bool:
        """Whether all epochs or steps are done, or early stopping (`patience`) ends the run."""
        progress, patience = self.progress, self.options.patience
        waited = 0 if progress.best is None else progress.epoch - max(progress.best["epoch"], self.first_epoch)
        return (
            progress.epoch >= self.options.epochs
            or (self.stepped_out and not progress.running.count)
            or (patience is not None and waited >= patience)
        )

    @property
    def stepped_out(self) -> bool:
        """Whether `max_steps` is reached."""
        return self.options.max_steps is not None and self.progress.step >= self.options.max_steps

    def batches(self) -> Iterator[Batch]:
        """The remaining batches of this epoch, augmented."""
        return self.train_batches.batches()

    def groups(self) -> Iterator[list[Batch]]:
        """The same in groups, one per step, until the end of the epoch or of the run."""
        each = self.train_batches.steps
        groups = self.train_batches.groups(0 if each is None else self.progress.step - self.progress.epoch * each)
        while not self.stepped_out and (group := next(groups, None)) is not None:
            yield group

    def loss(self, model: Any, batch: Batch) -> tuple[Any, Any]:
        """The loss of a batch and the model's outputs: from the recipe's `step`, or `loss(model(*inputs), target)`."""
        return training_loss(self.recipe, model, batch, self.optimizer)

    def measure(self, model: Any, batch: Batch) -> tuple[Any, Any]:
        """The same for an evaluation batch: from the recipe's `validate`, else as in training."""
        return validation_loss(self.recipe, model, batch)

    def step(self, *batches: Batch) -> float:
        """One step: forward and backward of each batch, then one update. Returns the loss of this process's batches.

        Gradients are those of one batch of all samples of all ranks, if the loss is a mean (`ox.train.loss_weight`).

        Raises:
            TrainError: the loss is NaN or infinite; nothing was updated.
        """
        with np.errstate(all="ignore"):  # the step checks for NaN and infinity itself
            running = Result()
            weights = [self._batch_weight(batch) for batch in batches]
            loss = self._step([self.train_batches.to_device(batch) for batch in batches], weights, running)
        self.progress.step += 1
        self.progress.running.join(running)
        return loss

    def evaluate(self, part: Any, model: Any = None) -> Result:
        """Loss, correct predictions and the recipe's metrics on a dataset. It changes no state.

        Args:
            part: the dataset.
            model: default: the model of this trainer, with the averaged weights if `ema` is set.

        Raises:
            TrainError: the loss is NaN or infinite.
        """
        names = {id(of): f"{name} data" for name, of in self.data.parts().items()}
        result = validate(
            self.update.evaluation_model if model is None else model,
            self.measure,
            part,
            name=f"{names.get(id(part), 'data')} after step {self.progress.step}",
            # without gradients, four times the batch size needs no more memory than a training step
            batch_size=min(EVALUATION_BATCH, 4 * self.options.batch_size),
            to_device=self.train_batches.to_device,
            metrics=self.metrics,
            collate=self.collate,
            weight=self._validation_weight,
            rank=self.ranks.rank,
            size=self.ranks.size,
        )
        return self.ranks.all_reduce_result(result, self.metrics)

    def close_epoch(self, rate: float) -> dict[str, Any]:
        """Ends an epoch: validates, and adds its row to the history."""
        progress, part = self.progress, self.data.validation
        validation = None if part is None else self.evaluate(part)
        running = self.ranks.all_reduce_result(progress.running)
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
            "samples_per_second": rate * self.ranks.size,
            "seconds": progress.seconds,
        }
        sample = self.sample()
        if sample is not None:
            row["sample"] = sample
        progress.close_epoch(row, self.criterion)
        self.update.after_epoch(lambda mode: self.criterion.figure(row, mode))
        return row

    def sample(self, model: Any = None) -> str | None:
        """The text of the recipe's `sample`; None without one. Random states are preserved.

        Args:
            model: as in `evaluate`.
        """
        from ox.autograd import no_grad

        show, model = self.recipe.function("sample"), self.update.evaluation_model if model is None else model
        if show is None:
            return None
        training = model.training
        model.eval()
        try:
            with no_grad(), rng_state.fork_rng():
                return str(show(model))
        finally:
            model.train(training)

    # -- the state of a checkpoint ------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The complete state, in a form that `ox.save` accepts."""
        return trainer_state.state_dict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a `state_dict`, also one of another number of ranks. If it had another number of epochs, the
        scheduler is moved to the same step of the new schedule.

        Raises:
            LoadError: the model has another architecture; lists the keys that differ.
        """
        trainer_state.load_state_dict(self, state)
