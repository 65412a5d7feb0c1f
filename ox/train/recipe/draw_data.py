"""Calls data() of a recipe: with a seed of its own, and compared with the data that a run was trained on."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.data.datasets.frames import is_frame
from ox.data.loading.worker_seeds import mix
from ox.errors import RecipeError, TrainError
from ox.random import stream_version
from ox.train import rng_state
from ox.train.recipe.datasets import Data, is_stream, length
from ox.train.recipe.manifest import Change, Manifest, changed, is_image, then_and_now
from ox.train.recipe.source_lines import definition

if TYPE_CHECKING:
    from ox.train.recipe.recipe import Recipe

DATA_SEED = -1  # with the seed of the run, the key of the random numbers in data()
IMAGE_SAMPLES = 32  # whose range of values is stored


def derived_seed(seed: int) -> int:
    """The seed of data() in a run of this seed."""
    return mix(seed, DATA_SEED)


def load_data(recipe: Recipe) -> Data:
    """The datasets of a recipe, the same in each call: its `data_seed` seeds the generators of ox, NumPy and Python for
    it, and their states are restored. With a manifest they have its split and its encoding.

    Raises:
        RecipeError: data() returned something other than two or three datasets, or an empty one.
        TrainError: they are not the data of the manifest.
    """
    data, manifest = _draw(recipe), recipe.manifest
    if manifest is None:
        return data
    now = Manifest.of(data, manifest.seed, recipe.sha256)
    changes = manifest.changes(now)
    if not changes:
        return manifest.apply(data, definition(recipe.optional("data")))
    if recipe.on_change == "error":
        raise _changed_data(recipe, now, changes)
    if recipe.on_change == "warning":
        warnings.warn(f"{recipe.path.name} has other data than the training: {changed(changes)}", stacklevel=3)
    return data


def describe(recipe: Recipe, data: Data) -> Manifest:
    """The manifest of data that `load_data` returned."""
    seed = _seed(recipe)
    with rng_state.fork_rng():
        rng_state.seed(seed)
        manifest = Manifest.of(data, seed, recipe.sha256, _images(recipe, data))
    return replace(manifest, random_stream=recipe.random_stream)


def _seed(recipe: Recipe) -> int:
    return derived_seed(recipe.defaults["seed"]) if recipe.data_seed is None else recipe.data_seed


def _draw(recipe: Recipe) -> Data:
    """The datasets that data() returns, checked."""
    with rng_state.fork_rng(), stream_version(recipe.random_stream):
        rng_state.seed(_seed(recipe))
        if recipe.data_after_model:
            recipe.function("model")()
        parts = recipe.function("data")()
    usable = isinstance(parts, tuple | list) and len(parts) in (2, 3) and parts[0] is not None
    if not usable or not all(map(_is_dataset, parts)):
        got = [type(part).__name__ for part in parts] if isinstance(parts, tuple | list) else type(parts).__name__
        raise RecipeError(
            f"data() in {recipe.path.name} did not return the datasets",
            expected="two or three: train, validation and, if there is one, test",
            got=str(got),
            hint="return TensorDataset(...), TensorDataset(...); train, None where there is nothing to validate on",
        )
    if any(length(part) == 0 for part in parts if part is not None):
        lengths = [None if part is None else length(part) for part in parts]
        raise RecipeError(
            f"data() in {recipe.path.name} returned an empty dataset",
            expected="samples in each: train, validation and, if there is one, test", got=str(lengths),
            hint="the table may have no rows, or the folder no files of the right type",
        )  # fmt: skip
    return Data(*parts, *[None] * (3 - len(parts)))


def _is_dataset(part: Any) -> bool:
    if is_frame(part):
        return False
    return part is None or is_stream(part) or (hasattr(part, "__getitem__") and hasattr(part, "__len__"))


def _changed_data(recipe: Recipe, now: Manifest, changes: list[Change]) -> TrainError:
    """The error for data that differ from the manifest. A second call of data() shows whether each differs."""
    expected, got = then_and_now(changes)
    where = definition(recipe.optional("data"))
    if now.changes(Manifest.of(_draw(recipe), now.seed, now.recipe)):
        return TrainError(
            f"data() in {recipe.path.name} returns other samples in each call: those of the training are lost",
            where=where, expected=expected, got=got,
            hint="draw with random_split, ox.randperm or NumPy's global generator, and train again",
        )  # fmt: skip
    return TrainError(
        "the data have changed since the training", where=where, expected=expected, got=got,
        hint="restore the data; or --recipe FILE, for the data as they are now",
    )  # fmt: skip


def _images(recipe: Recipe, data: Data) -> np.ndarray[Any, Any] | None:
    """The first validation samples, if the model takes images."""
    part = data.trial_part()
    if is_stream(part):
        return None
    try:
        if not is_image(recipe.examples(1, data=data)[0].shape[1:]):
            return None
        return recipe.examples(IMAGE_SAMPLES, data=data)[0]
    except Exception:  # samples that no batch can be made of: training reports them
        return None
