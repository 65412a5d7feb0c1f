"""How much the loss of a batch counts in a mean over several batches, of one process or of many.

A loss that is a mean over its samples counts by their number. One that is a mean over something else, such as labels
that are not ignored, says its weight by a method or attribute `batch_weight`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any, cast

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
    training = by_loss if own_step is None else _checked(_own(own_step, "batch"))
    if own_validation is not None:
        return training, _checked(_own(own_validation, "batch"))
    return training, by_loss if recipe.updates else training


def _own(function: Any, of: str) -> Callable[[Any], Any] | None:
    """The attribute `batch_weight`. Raises RecipeError where it is nothing to call with one value."""
    own: Any = getattr(function, "batch_weight", None)
    if own is None:
        return None
    try:
        signature(own).bind(None)
    except TypeError as error:
        raise RecipeError(
            f"batch_weight is no function of a {of}", expected=f"batch_weight({of})", got=f"{own!r}: {error}"
        ) from None
    except ValueError:  # a function of C, which does not tell its parameters
        pass
    return cast("Callable[[Any], Any]", own)


def _declared(loss: Any) -> Callable[[Any], Any] | None:
    """The `batch_weight` of a loss, also of the functions of `ox.nn.functional` and their partials."""
    own = _own(loss, "target")
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
        shape = tuple(getattr(value, "shape", ()))
        try:
            number = math.nan if math.prod(shape) != 1 or isinstance(value, str) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not (math.isfinite(number) and number >= 0):
            raise RecipeError(
                "batch_weight() is not the weight of a mean",
                expected="a number from 0, or None: the number of samples",
                got=f"{type(value).__name__} of shape {list(shape)}" if shape else repr(value),
                hint="such as (target != ignored).sum()" if shape else None,
            )
        return number

    return weight
