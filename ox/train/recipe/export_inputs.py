"""The module that a recipe exports, and its example inputs; both are checked with a call."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.autograd import no_grad
from ox.core.tensor import is_tensor
from ox.errors import RecipeError, first_line
from ox.functions.creation import from_numpy
from ox.train import rng_state
from ox.train.batch import named_parts, ordered_inputs
from ox.train.recipe.datasets import Data
from ox.train.recipe.recipe import Recipe
from ox.train.samples import as_array

if TYPE_CHECKING:
    from ox.train.trainer import Trainer


def module_to_export(recipe: Recipe, model: Any) -> Any:
    """The module to export, in eval mode: the result of the recipe's `export`, else the model itself.

    Raises:
        RecipeError: `export` returned no module.
    """
    from ox.nn import Module

    part = recipe.function("export")
    if part is None or recipe.base is not None:
        return model
    made = part(model)
    return recipe.check_result("export", made, isinstance(made, Module), "a module").eval()


def example_inputs(
    recipe: Recipe, count: int, order: Any = None, data: Data | None = None
) -> list[np.ndarray[Any, Any]]:
    """Inputs of an exported module: from the recipe's `example_inputs`, else those of the first `count` samples. One
    array per input, each with a leading batch axis.

    Args:
        order: the module, or the names of its inputs.
        data: the datasets of the recipe, if they are already loaded.
    """
    given = _recipe_inputs(recipe, count, order)
    return recipe.examples(count, order, data) if given is None else [as_array(x) for x in given.values()]


def input_names(recipe: Recipe, model: Any) -> list[str]:
    """The names of an exported module's inputs, from the recipe file or its samples; empty if neither has names."""
    if recipe.inputs:
        return list(recipe.inputs)
    given = _recipe_inputs(recipe, 1, model)
    if given is not None:
        return [name for name in given if isinstance(name, str)]
    batch = recipe.batch(1)
    return [] if named_parts(batch) is None else ordered_inputs(model, batch)[1]


def _recipe_inputs(recipe: Recipe, count: int, order: Any) -> dict[Any, Any] | None:
    """The result of the recipe's `example_inputs`, by name or position, in the module's order; None without one."""
    make = recipe.function("example_inputs")
    if make is None or recipe.base is not None:
        return None
    made = make(count)
    several = made if isinstance(made, dict) else dict(enumerate(made if isinstance(made, tuple | list) else [made]))
    usable = bool(several) and all(isinstance(x, np.ndarray) or is_tensor(x) for x in several.values())
    recipe.check_result("example_inputs", several, usable, "arrays or tensors, one an input")
    names = list(inspect.signature(order.forward).parameters) if hasattr(order, "forward") else list(order or ())
    return {name: several[name] for name in names if name in several} if several.keys() <= set(names) else several


def export_error(trainer: Trainer) -> Exception | None:
    """The error that an export of this finished run would raise; None if it can be exported."""
    recipe, model = trainer.recipe, trainer.update.evaluation_model
    if recipe.base is not None or not recipe.text:
        return None
    training = model.training
    try:
        with rng_state.fork_rng():
            to_export(recipe, model.eval(), 2, trainer.data, trainer.device)
    except Exception as error:
        return error
    finally:
        model.train(training)
    return None


def to_export(
    recipe: Recipe, model: Any, count: int, data: Data | None = None, device: str = "cpu"
) -> tuple[Any, list[np.ndarray[Any, Any]]]:
    """The module that a recipe exports, in eval mode, and the inputs to record it with.

    Args:
        count: number of samples in the inputs.
        data: the datasets of the recipe, if they are already loaded.

    Raises:
        RecipeError: the module does not accept the inputs; the message has the lines to add to the recipe file.
    """
    part = module_to_export(recipe, model)
    inputs = example_inputs(recipe, count, part, data)
    if recipe.base is None:
        _try_forward(recipe, part, inputs, device)
    return part, inputs


def _try_forward(recipe: Recipe, model: Any, inputs: list[np.ndarray[Any, Any]], device: str = "cpu") -> None:
    """Calls a model with the inputs of the recording. Random states are preserved."""
    try:
        with no_grad(), rng_state.fork_rng(), np.errstate(all="ignore"):
            model(*(from_numpy(x).to(device) for x in inputs))
    except Exception as error:
        raise _call_failed(recipe, model, inputs, error) from error


def _call_failed(recipe: Recipe, model: Any, inputs: list[np.ndarray[Any, Any]], error: Exception) -> RecipeError:
    own = recipe.optional("example_inputs") is not None
    needed = "example_inputs(count)" + " that returns the arguments of forward: for each an array of count samples"
    if recipe.optional("export") is None:
        needed += "; and export(model), where only a part is exported"
    first = first_line(error)
    kinds = ", ".join(f"{x.dtype} {list(x.shape)}" for x in inputs)
    return RecipeError(
        f"{type(model).__name__} cannot be called with {'example_inputs()' if own else 'the samples of data()'}",
        where=getattr(error, "where", None), got=f"{kinds}: {first}", hint=f"in the recipe file: {needed}",
    )  # fmt: skip
