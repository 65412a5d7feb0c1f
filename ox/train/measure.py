"""The loss of a batch as a recipe has it: its own step, or its loss of the model's outputs."""

from __future__ import annotations

from typing import Any

from ox.errors import RecipeError
from ox.train.batch import arguments, target_of
from ox.train.recipe import Recipe


def training_loss(recipe: Recipe, model: Any, batch: Any, optimizer: Any = None) -> tuple[Any, Any]:
    """Loss and outputs of a batch to train on: the page's `step`, else ``loss(model(*inputs), target)``.

    Args:
        optimizer: for a step that updates by itself.
    """
    own = recipe.function("step")
    if own is None:
        return _plain(recipe, model, batch)
    return _pair(recipe, "step", own(model, batch, optimizer) if recipe.updates else own(model, batch))


def validation_loss(recipe: Recipe, model: Any, batch: Any) -> tuple[Any, Any]:
    """The same of a batch to evaluate: the page's `validate`, else what trains, unless that updates by itself."""
    own = recipe.function("validate")
    if own is not None:
        return _pair(recipe, "validate", own(model, batch))
    if not recipe.updates:
        return training_loss(recipe, model, batch)
    if recipe.optional("loss") is None:
        raise RecipeError(
            f"nothing in {recipe.path.name} says what to measure: its step(model, batch, optimizers) only trains",
            expected="validate(model, batch) on the page, which returns (loss, outputs), or a loss",
        )
    return _plain(recipe, model, batch)


def _plain(recipe: Recipe, model: Any, batch: Any) -> tuple[Any, Any]:
    inputs, named = arguments(model, batch)
    outputs = model(*inputs, **named)
    return recipe.function("loss")(outputs, target_of(batch)), outputs


def _pair(recipe: Recipe, name: str, result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise RecipeError(
            f"{name}() in {recipe.path.name} did not return a pair",
            expected="(loss, outputs), or (loss, None)",
            got=type(result).__name__,
        )
    return result
