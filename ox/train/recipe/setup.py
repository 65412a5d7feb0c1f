"""Creates the parts of a trainer from its recipe: optimizer, scheduler, sampler, augmentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ox.autograd import no_grad
from ox.data.batch_map import map_tensors
from ox.errors import OxError, RecipeError
from ox.random import Generator
from ox.train.batch import tensors
from ox.train.batches import TrainBatches
from ox.train.loss import training_loss
from ox.train.ranks import Ranks
from ox.train.recipe.datasets import Data, is_stream
from ox.train.recipe.recipe import Recipe
from ox.train.run.train_config import TrainConfig
from ox.train.sampler import ReplayedSampler
from ox.train.update import as_list


def optimizer(recipe: Recipe, model: Any, lr: float) -> Any:
    """The optimizers of the recipe, one or several; default: AdamW."""
    make = recipe.function("optimizer")
    if make is not None:
        made = make(model, lr)
        usable = bool(as_list(made)) and all(hasattr(one, "param_groups") for one in as_list(made))
        return recipe.check_result("optimizer", made, usable, "an optimizer")
    from ox.optim import AdamW

    return AdamW(model.parameters(), lr=lr)


def scheduler(recipe: Recipe, optimizer: Any, lr: float, steps: int | None) -> Any:
    """The schedulers of the recipe, one or several; None without."""
    make = recipe.function("scheduler")
    if make is None:
        return None
    try:
        made = make(optimizer, lr, steps)
    except OxError as error:
        if steps is None:
            error.hint = "steps is None, for the stream has no length: max_steps or steps_per_epoch in defaults"
        raise
    usable = bool(as_list(made)) and all(hasattr(one, "step") for one in as_list(made))
    return recipe.check_result("scheduler", made, usable, "a scheduler")


def steps(batches: TrainBatches, options: TrainConfig) -> int | None:
    """The total number of steps; None if unknown (a stream without a length).

    Raises:
        RecipeError: an epoch has no step.
    """
    each, most = batches.steps, options.max_steps
    if each == 0:
        raise RecipeError(
            "an epoch has no step",
            got=f"{len(batches.loader.dataset)} samples, batch_size {options.batch_size}, "
            f"drop_last={options.drop_last}",
            hint="a smaller --batch-size, or drop_last=False",
        )
    if each is None:
        return most
    return min(options.epochs * each, most or options.epochs * each)


def sampler(recipe: Recipe, options: TrainConfig, dataset: Any, ranks: Ranks) -> ReplayedSampler | None:
    """The `sampler` or `batch_sampler` of the recipe; None without.

    Raises:
        RecipeError: both are defined, or the data is a stream.
    """
    made = [(recipe.function(name), name == "batch_sampler") for name in ("sampler", "batch_sampler")]
    found = [(make, batched) for make, batched in made if make is not None]
    if not found:
        return None
    if len(found) > 1 or is_stream(dataset):
        why = "a stream has no indices" if len(found) < 2 else "a recipe has a sampler or a batch_sampler"
        raise RecipeError(f"{why}: {recipe.path.name} cannot be sampled so", hint="one of them, or none")
    ((make, batched),) = found
    count = options.steps_per_epoch
    if count is not None:
        count *= options.accumulate * ranks.size * (1 if batched else options.batch_size)
    return ReplayedSampler(make(dataset), ranks, batched, count)


def augment(recipe: Recipe) -> Callable[..., Any] | None:
    """The `augment` of the recipe with a check of its result; None without."""
    own = recipe.function("augment")
    if own is None:
        return None

    def augmented(batch: Any, generator: Generator) -> Any:
        made = own(batch, generator)
        return recipe.check_result("augment", made, bool(tensors(made)), "a batch, the tensors that it was given")

    return augmented


def shape_lazy(recipe: Recipe, model: Any, data: Data, device: str) -> None:
    """Initializes lazy parameters before the optimizer is created, with a forward pass of the first two samples. A
    `step` that calls the optimizers itself is not run; its lazy parameters stay uninitialized."""
    from ox.nn.base.uninitialized import is_lazy

    if recipe.updates or not any(map(is_lazy, (*model.parameters(), *model.buffers()))):
        return
    training = model.training
    model.eval()
    try:
        with no_grad():
            batch = recipe.batch(2, data, train=True)
            batch = tuple(batch) if type(batch) is list else batch
            own = augment(recipe)
            batch = batch if own is None else own(batch, Generator(0))
            training_loss(recipe, model, map_tensors(lambda x: x.to(device), batch))
    except Exception:
        pass  # the first step raises the error, with the sample at fault
    finally:
        model.train(training)


def check(recipe: Recipe, options: TrainConfig, data: Data) -> None:
    """Raises RecipeError if options or definitions conflict with a `step` that calls the optimizers itself, or with
    missing validation data."""
    if recipe.updates:
        given = {"clip": options.clip, "amp='fp16'": options.amp == "fp16", "accumulate": options.accumulate > 1}
        if wrong := [name for name, is_given in given.items() if is_given]:
            raise RecipeError(
                f"{wrong[0]} does not go with step(model, batch, optimizers), which updates by itself",
                hint="do it in the step",
            )
        measured = recipe.optional("validate") or recipe.optional("loss")
        if measured is None and (data.validation is not None or data.held_back is not None):
            raise RecipeError(
                "step(model, batch, optimizers) only trains: the measure on the validation data is not defined",
                expected="validate(model, batch) in the recipe file, which returns (loss, outputs), or a loss",
                hint="return train, None in data(), where there is nothing to measure",
            )
    if data.validation is None and (options.patience is not None or recipe.optional("best") is not None):
        name = "best" if options.patience is None else "patience"
        raise RecipeError(f"{name} needs validation data", got="data() without any")
