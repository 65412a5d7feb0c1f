"""How much the loss of a batch counts in a mean over several batches, of one process or of many.

A loss that is a mean over its samples counts by their number. One that is a mean over something else, such as labels
that are not ignored, says its weight by a method or attribute `batch_weight`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from ox.errors import ArgumentError, RecipeError
from ox.nn import functional as F
from ox.nn.layers.class_loss import CrossEntropyLoss, NLLLoss
from ox.train.batch import batch_size, target_of
from ox.train.recipe.recipe import Recipe

COUNTED: dict[Any, Any] = {F.cross_entropy: CrossEntropyLoss, F.nll_loss: NLLLoss}
BatchWeight = Callable[[Any], float]


def batch_weights(recipe: Recipe) -> tuple[BatchWeight, BatchWeight]:
    """Functions of a batch, in training and in validation: the weight of its loss in a mean of several batches.

    For a recipe's `loss` it is ``loss.batch_weight(target)``; for its `step` or `validate`,
    ``step.batch_weight(batch)``; without such a method, or if it returns None, the number of samples.
    """
    own_step, own_validation, loss = map(recipe.optional, ("step", "validate", "loss"))
    by_loss = _of_target(_declared(loss))
    training = by_loss if own_step is None else _checked(getattr(own_step, "batch_weight", None))
    if own_validation is not None:
        return training, _checked(getattr(own_validation, "batch_weight", None))
    return training, by_loss if recipe.updates else training


def _declared(loss: Any) -> Callable[[Any], Any] | None:
    """The `batch_weight` of a loss, also of the functions of `ox.nn.functional` and their partials."""
    own: Callable[[Any], Any] | None = getattr(loss, "batch_weight", None)
    if own is not None:
        return own
    function, named = (loss.func, dict(loss.keywords)) if isinstance(loss, partial) else (loss, {})
    if isinstance(loss, partial) and loss.args:
        return None
    try:
        kind = COUNTED.get(function)
        return None if kind is None else kind(**named).batch_weight
    except (TypeError, ArgumentError):  # not hashable, or wrong arguments, of which the loss itself complains
        return None


def _of_target(declared: Callable[[Any], Any] | None) -> BatchWeight:
    if declared is None:
        return batch_size

    def weight(batch: Any) -> float | None:
        target = target_of(batch)
        return None if target is None else declared(target)

    return _checked(weight)


def _checked(declared: Callable[[Any], Any] | None) -> BatchWeight:
    """The declared weight as a float, or the number of samples."""
    if declared is None:
        return batch_size

    def weight(batch: Any) -> float:
        value = declared(batch)
        if value is None:
            return batch_size(batch)
        number = float(value)
        if not (math.isfinite(number) and number >= 0):
            raise RecipeError("batch_weight() is not the weight of a mean", expected="a number from 0", got=f"{number}")
        return number

    return weight
