"""What a trainer is made of, as its recipe's page makes it: optimizer, scheduler, sampler, augmentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ox.random
from ox.autograd import no_grad
from ox.errors import OxError, RecipeError
from ox.train.batch import map_tensors, tensors
from ox.train.datasets import Data, is_stream
from ox.train.feed import Feed
from ox.train.measure import training_loss
from ox.train.options import Options
from ox.train.recipe import Recipe
from ox.train.sampler import ReplayedSampler
from ox.train.team import Alone
from ox.train.update import several


def optimizer(recipe: Recipe, model: Any, lr: float) -> Any:
    """The page's, one or several; AdamW without."""
    make = recipe.function("optimizer")
    if make is not None:
        made = make(model, lr)
        usable = bool(several(made)) and all(hasattr(one, "param_groups") for one in several(made))
        return recipe.gave("optimizer", made, usable, "an optimizer")
    from ox.optim import AdamW

    return AdamW(model.parameters(), lr=lr)


def scheduler(recipe: Recipe, optimizer: Any, lr: float, steps: int | None) -> Any:
    """The page's, one or several; None without."""
    make = recipe.function("scheduler")
    if make is None:
        return None
    try:
        made = make(optimizer, lr, steps)
    except OxError as error:
        if steps is None:
            error.hint = "steps is None, for the stream has no length: max_steps or steps_per_epoch in defaults"
        raise
    usable = bool(several(made)) and all(hasattr(one, "step") for one in several(made))
    return recipe.gave("scheduler", made, usable, "a scheduler")


def steps(feed: Feed, options: Options) -> int | None:
    """Steps in all; None where only the end of a stream says.

    Raises:
        RecipeError: an epoch has none.
    """
    each, most = feed.steps, options.max_steps
    if each == 0:
        raise RecipeError(
            "an epoch has no step",
            got=f"{len(feed.loader.dataset)} samples, batch_size {options.batch_size}, drop_last={options.drop_last}",
            hint="a smaller --batch-size, or drop_last=False",
        )
    if each is None:
        return most
    return min(options.epochs * each, most or options.epochs * each)


def sampler(recipe: Recipe, options: Options, dataset: Any, team: Alone) -> ReplayedSampler | None:
    """The page's own, if there is one.

    Raises:
        RecipeError: two of them, or one of a stream.
    """
    made = [(recipe.function(name), name == "batch_sampler") for name in ("sampler", "batch_sampler")]
    found = [(make, batched) for make, batched in made if make is not None]
    if not found:
        return None
    if len(found) > 1 or is_stream(dataset):
        why = "a stream has no indices" if len(found) < 2 else "a page has a sampler or a batch_sampler"
        raise RecipeError(f"{why}: {recipe.path.name} cannot be sampled so", hint="one of them, or none")
    ((make, batched),) = found
    count = options.steps_per_epoch
    if count is not None:
        count *= options.accumulate * team.size * (1 if batched else options.batch_size)
    return ReplayedSampler(make(dataset), team, batched, count)


def augment(recipe: Recipe) -> Callable[..., Any] | None:
    """The page's own, if there is one, with a look at what it returns."""
    own = recipe.function("augment")
    if own is None:
        return None

    def augmented(batch: Any, generator: ox.random.Generator) -> Any:
        made = own(batch, generator)
        return recipe.gave("augment", made, bool(tensors(made)), "a batch, the tensors that it was given")

    return augmented


def shape_lazy(recipe: Recipe, model: Any, data: Data, device: str) -> None:
    """Let parameters that wait for a shape have it before an optimizer sees them: by the first two samples, as a step
    has them. With a step that updates by itself they wait on."""
    from ox.nn.uninitialized import is_lazy

    if recipe.updates or not any(map(is_lazy, (*model.parameters(), *model.buffers()))):
        return
    training = model.training
    model.eval()
    try:
        with no_grad():
            batch = recipe.batch(2, data, train=True)
            batch = tuple(batch) if type(batch) is list else batch
            own = augment(recipe)
            batch = batch if own is None else own(batch, ox.random.Generator(0))
            training_loss(recipe, model, map_tensors(lambda x: x.to(device), batch))
    except Exception:
        pass  # the first step says what is wrong, with the sample that is to blame
    finally:
        model.train(training)


def check(recipe: Recipe, options: Options, data: Data) -> None:
    """Raise RecipeError where the options, or what the page defines, do not go with a step that updates by itself, or
    with data without validation."""
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
                "step(model, batch, optimizers) only trains: nothing says what to measure on the validation data",
                expected="validate(model, batch) on the page, which returns (loss, outputs), or a loss",
                hint="return train, None in data(), where there is nothing to measure",
            )
    if data.validation is None and (options.patience is not None or recipe.optional("best") is not None):
        name = "best" if options.patience is None else "patience"
        raise RecipeError(f"{name} needs validation data", got="data() without any")
