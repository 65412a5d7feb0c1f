"""The training step of a recipe as a function of tensors, which `ox export --train` writes as a file."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ox.data.batch_map import map_tensors
from ox.errors import RecipeError
from ox.random import Generator
from ox.train import rng_state
from ox.train.batch import named_parts, target_of, tensors
from ox.train.loss import training_loss
from ox.train.recipe import setup
from ox.train.recipe.recipe import Recipe
from ox.train.run.train_config import TrainConfig
from ox.train.samples import as_array
from ox.train.update import as_list

BATCH, TARGET = "batch", "target"


@dataclass(frozen=True)
class RecipeStep:
    """A model, its optimizer, an example batch, and the function from its tensors to (loss, outputs).

    Attributes:
        example: the arrays of a batch, by the names of the inputs.
        dims: the sizes of each, ``batch`` where it varies.
        target: which of them is the target; None where that is none of them.
    """

    recipe: Recipe
    model: Any
    optimizer: Any
    options: TrainConfig
    batch: Any
    example: Mapping[str, np.ndarray[Any, Any]]
    dims: Mapping[str, tuple[int | str, ...]]
    target: int | None

    def __call__(self, *given: Any) -> tuple[Any, Any]:
        """Loss and outputs of a batch of these tensors."""
        rest = iter(given)
        return training_loss(self.recipe, self.model, map_tensors(lambda _: next(rest), self.batch))


def new_model(recipe: Recipe) -> Any:
    """The untrained model of a recipe, as a run with its seed begins."""
    options = TrainConfig.from_defaults(recipe.defaults)
    data = recipe.data()
    rng_state.seed(options.seed)
    model = recipe.model(data)
    setup.shape_lazy(recipe, model, data, "cpu")
    return model


def training_step(recipe: Recipe, model: Any, count: int, options: TrainConfig) -> RecipeStep:
    """The step of a recipe with a new optimizer, and the first `count` samples of its training data.

    Raises:
        RecipeError: a recipe whose step cannot be one graph, or a batch that is not of tensors alone.
    """
    if recipe.updates:
        raise RecipeError(
            f"step(model, batch, optimizers) of {recipe.path.name} updates by itself, which no file can do",
            expected="a loss, or step(model, batch), and one optimizer",
        )
    optimizers = as_list(setup.optimizer(recipe, model, options.lr))
    if len(optimizers) > 1:
        raise RecipeError(
            f"optimizer() of {recipe.path.name} returns several", expected="one", got=str(len(optimizers))
        )
    batch = recipe.batch(count, train=True)
    augment = setup.augment(recipe)  # whose result is what the model takes
    if augment is not None:
        batch = augment(tuple(batch) if type(batch) is list else batch, Generator(0))
    found = [tensor for _, tensor in tensors(batch)]
    if not found:
        raise RecipeError(f"the batches of {recipe.path.name} have no tensors", got=type(batch).__name__)
    target = target_of(batch)
    names = _names(recipe, model, batch, target)
    arrays = dict(zip(names, map(as_array, found), strict=True))
    dims = {
        name: tuple(BATCH if axis == 0 and size == len(found[0]) else size for axis, size in enumerate(array.shape))
        for name, array in arrays.items()
    }
    place = next((i for i, tensor in enumerate(found) if tensor is target), None)
    return RecipeStep(recipe, model, optimizers[0], options, batch, arrays, dims, place)


def _names(recipe: Recipe, model: Any, batch: Any, target: Any) -> list[str]:
    """A name for each tensor of a batch: its key, or for tuples that of the model's input; ``target``."""
    found = tensors(batch)
    if named_parts(batch) is not None:
        return [path for path, _ in found]
    inputs = list(recipe.inputs) or list(inspect.signature(model.forward).parameters)
    others = iter([*inputs, *(f"input_{i}" for i in range(len(inputs), len(found)))])
    return [TARGET if tensor is target else next(others) for _, tensor in found]
