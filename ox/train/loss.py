"""The loss of a batch: from the recipe's `step`, or from its `loss` and the model's outputs."""

from __future__ import annotations

from typing import Any

from ox.errors import RecipeError
from ox.train.batch import model_arguments, target_of
from ox.train.recipe.recipe import Recipe


def training_loss(recipe: Recipe, model: Any, batch: Any, optimizer: Any = None) -> tuple[Any, Any]:
    """Loss and outputs of a training batch: from the recipe's `step`, else ``loss(model(*inputs), target)``.

    Args:
        optimizer: for a `step` that calls the optimizers itself.
    """
    own = recipe.function("step")
    if own is None:
        return _model_loss(recipe, model, batch)
    return _check_pair(recipe, "step", own(model, batch, optimizer) if recipe.updates else own(model, batch))


def validation_loss(recipe: Recipe, model: Any, batch: Any) -> tuple[Any, Any]:
    """Loss and outputs of an evaluation batch: from the recipe's `validate`, else as in training, unless the recipe's
    `step` calls the optimizers itself."""
    own = recipe.function("validate")
    if own is not None:
        return _check_pair(recipe, "validate", own(model, batch))
    if not recipe.updates:
        return training_loss(recipe, model, batch)
    if recipe.optional("loss") is None:
        raise RecipeError(
            f"{recipe.path.name} does not define what to measure: its step(model, batch, optimizers) only trains",
            expected="validate(model, batch) in the recipe file, which returns (loss, outputs), or a loss",
        )
    return _model_loss(recipe, model, batch)


def _model_loss(recipe: Recipe, model: Any, batch: Any) -> tuple[Any, Any]:
    inputs, named = model_arguments(model, batch)
    outputs = model(*inputs, **named)
    return recipe.function("loss")(outputs, target_of(batch)), outputs


def _check_pair(recipe: Recipe, name: str, result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise RecipeError(
            f"{name}() in {recipe.path.name} did not return a pair",
            expected="(loss, outputs), or (loss, None)",
            got=type(result).__name__,
        )
    return result
