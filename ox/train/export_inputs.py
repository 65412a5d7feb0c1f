"""What a page exports, and whether that can be called: tried before it is recorded, or promised."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.autograd import no_grad
from ox.creation import from_numpy
from ox.errors import RecipeError
from ox.train import chance
from ox.train.batch import is_tensor, named_parts, ordered
from ox.train.datasets import Data
from ox.train.recipe import Recipe
from ox.train.samples import plain

if TYPE_CHECKING:
    from ox.train.trainer import Trainer


def exported(recipe: Recipe, model: Any) -> Any:
    """The module to export, in eval mode: what the page's `export` gives of a model, else the model itself.

    Raises:
        RecipeError: it gives no module.
    """
    from ox.nn import Module

    part = recipe.function("export")
    if part is None or recipe.base is not None:
        return model
    made = part(model)
    return recipe.gave("export", made, isinstance(made, Module), "a module").eval()


def example_inputs(
    recipe: Recipe, count: int, order: Any = None, data: Data | None = None
) -> list[np.ndarray[Any, Any]]:
    """What an exported module takes: the page's `example_inputs`, else the inputs of the first `count` samples; one
    array an input, each with a leading batch axis.

    Args:
        order: the module, or the names of its inputs.
        data: the recipe's, where they are read already.
    """
    given = _given(recipe, count, order)
    return recipe.examples(count, order, data) if given is None else [plain(x) for x in given.values()]


def input_names(recipe: Recipe, model: Any) -> list[str]:
    """The names of an exported module's inputs, as the page or its samples have them; none where neither has any."""
    if recipe.inputs:
        return list(recipe.inputs)
    given = _given(recipe, 1, model)
    if given is not None:
        return [name for name in given if isinstance(name, str)]
    batch = recipe.batch(1)
    return [] if named_parts(batch) is None else ordered(model, batch)[1]


def _given(recipe: Recipe, count: int, order: Any) -> dict[Any, Any] | None:
    """What the page's `example_inputs` gives, by names or numbers, in the module's order; None without one."""
    make = recipe.function("example_inputs")
    if make is None or recipe.base is not None:
        return None
    made = make(count)
    several = made if isinstance(made, dict) else dict(enumerate(made if isinstance(made, tuple | list) else [made]))
    usable = bool(several) and all(isinstance(x, np.ndarray) or is_tensor(x) for x in several.values())
    recipe.gave("example_inputs", several, usable, "arrays or tensors, one an input")
    names = list(inspect.signature(order.forward).parameters) if hasattr(order, "forward") else list(order or ())
    return {name: several[name] for name in names if name in several} if several.keys() <= set(names) else several


def obstacle(trainer: Trainer) -> Exception | None:
    """Why the model of a finished run cannot be exported as its page stands; None where nothing is in the way."""
    recipe, model = trainer.recipe, trainer.update.evaluated
    if recipe.base is not None or not recipe.text:
        return None
    training = model.training
    try:
        with chance.kept():
            to_export(recipe, model.eval(), 2, trainer.data, trainer.device)
    except Exception as error:
        return error
    finally:
        model.train(training)
    return None


def to_export(
    recipe: Recipe, model: Any, count: int, data: Data | None = None, device: str = "cpu"
) -> tuple[Any, list[np.ndarray[Any, Any]]]:
    """The module that a page exports of its model, in eval mode, and the inputs to record it with.

    Args:
        count: samples in these.
        data: the recipe's, where they are read already.

    Raises:
        RecipeError: the module does not take the inputs; says what the page lacks.
    """
    part = exported(recipe, model)
    inputs = example_inputs(recipe, count, part, data)
    if recipe.base is None:
        _try_forward(recipe, part, inputs, device)
    return part, inputs


def _try_forward(recipe: Recipe, model: Any, inputs: list[np.ndarray[Any, Any]], device: str = "cpu") -> None:
    """Call a model on the inputs that it is to be recorded with. No random numbers are used up."""
    try:
        with no_grad(), chance.kept(), np.errstate(all="ignore"):
            model(*(from_numpy(x).to(device) for x in inputs))
    except Exception as error:
        raise _refused(recipe, model, inputs, error) from error


def _refused(recipe: Recipe, model: Any, inputs: list[np.ndarray[Any, Any]], error: Exception) -> RecipeError:
    own = recipe.optional("example_inputs") is not None
    needed = "example_inputs(count)" + " that returns what its forward takes: an array of count rows an input"
    if recipe.optional("export") is None:
        needed += "; and export(model), where only a part is exported"
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    kinds = ", ".join(f"{x.dtype} {list(x.shape)}" for x in inputs)
    return RecipeError(
        f"{type(model).__name__} cannot be called with {'example_inputs()' if own else 'the samples of data()'}",
        where=getattr(error, "where", None), got=f"{kinds}: {first}", hint=f"on the page: {needed}",
    )  # fmt: skip
