"""A recipe without a recipe file: from a model, a loss, an optimizer and data."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ox.core.random_stream import drawing
from ox.core.tensor import is_tensor
from ox.data import TensorDataset, random_split
from ox.data.datasets.frames import frame_array, is_frame, is_series
from ox.errors import ArgumentError
from ox.random import Generator
from ox.train.recipe.datasets import is_stream
from ox.train.recipe.recipe import DEFAULT_OPTIONS, Recipe
from ox.train.run.train_config import TrainConfig
from ox.train.update import as_list

VALIDATION_SHARE = 0.1


def recipe_from_objects(
    model: Any,
    loss: Callable[[Any, Any], Any] | None = None,
    optimizer: Any = None,
    train_data: Any = None,
    validation_data: Any = VALIDATION_SHARE,
    held_back: Any = None,
    *,
    scheduler: Any = None,
    collate: Callable[[list[Any]], Any] | None = None,
    sampler: Any = None,
    batch_sampler: Any = None,
    augment: Callable[..., Any] | None = None,
    step: Callable[..., Any] | None = None,
    validate: Callable[..., Any] | None = None,
    metrics: Sequence[Any] = (),
    best: str | None = None,
    sample: Callable[[Any], Any] | None = None,
    labels: Sequence[str] | None = None,
    **options: Any,
) -> tuple[Recipe, TrainConfig]:
    """Converts the arguments of `Trainer` to a recipe and options.

    Raises:
        ArgumentError: an argument is missing or wrong.
    """
    from ox.nn import Module

    if not isinstance(model, Module):
        raise ArgumentError("a Trainer needs a model", expected="an ox.nn.Module", got=repr(type(model)))
    if train_data is None or (not callable(loss) and step is None):
        raise ArgumentError(
            f"a Trainer needs {'train_data' if train_data is None else 'a loss'}",
            hint="Trainer(model, nn.CrossEntropyLoss(), optimizer, train_data)",
        )  # fmt: skip
    unknown = options.keys() - TrainConfig.__dataclass_fields__.keys()
    if unknown:
        known = ", ".join(TrainConfig.__dataclass_fields__)
        raise ArgumentError(f"a Trainer has no option '{min(unknown)}'", expected=known)
    has_optimizer = not callable(optimizer) and bool(as_list(optimizer))
    if has_optimizer and hasattr(as_list(optimizer)[0], "param_groups"):
        options.setdefault("lr", float(as_list(optimizer)[0].param_groups[0]["lr"]))
    settings = TrainConfig.from_defaults(DEFAULT_OPTIONS, **options)
    page = ModuleType(type(model).__name__)
    vars(page).update(
        model=lambda: model,
        seed=settings.seed,
        data=lambda: _parts(train_data, validation_data, held_back, page.seed),
        loss=loss,
        defaults={},
        optimizer=(lambda model, lr: optimizer) if has_optimizer else optimizer,
        scheduler=scheduler if callable(scheduler) or scheduler is None else (lambda optimizer, lr, steps: scheduler),
        collate=collate,
        sampler=_as_function(sampler),
        batch_sampler=_as_function(batch_sampler),
        augment=augment,
        step=step,
        validate=validate,
        metrics=metrics,
        best=best,
        sample=sample,
        labels=labels,
    )
    return Recipe(type(model).__name__.lower(), Path(sys.argv[0] or "python"), "", page), settings


def _as_function(sampler: Any) -> Any:
    """A sampler as a function of the dataset, as in a recipe file."""
    return (lambda dataset: sampler) if hasattr(sampler, "__iter__") else sampler


def _parts(train: Any, validation: Any, held_back: Any, seed: int) -> tuple[Any, ...]:
    """The datasets; `validation` may be a fraction of the training data."""
    train = _dataset(train)
    if is_stream(train) and isinstance(validation, float):
        validation = None  # a stream cannot be split
    if isinstance(validation, float):
        if not 0 < validation < 1:
            raise ArgumentError("validation_data is a dataset or a share between 0 and 1", got=str(validation))
        share, count = validation, len(train)
        with drawing("validation_split"):  # another than a split of the script with the same seed
            train, validation = random_split(train, [1 - share, share], Generator(seed))
        if not len(train) or not len(validation):
            raise ArgumentError(
                f"{count} sample{'s' * (count != 1)} of train_data cannot be divided to validate on {share:g} of them",
                hint="validation_data=(inputs, targets), or a dataset",
            )  # fmt: skip
    parts = (train, _dataset(validation))
    return parts if held_back is None else (*parts, _dataset(held_back))


def _dataset(data: Any) -> Any:
    """A tuple of arrays, tensors or data frames as a dataset; a dataset unchanged."""
    if is_frame(data) or is_series(data):
        raise ArgumentError(
            "a data frame alone does not say which column is the target", got=type(data).__name__,
            hint="(frame[['a', 'b']], frame['target']), or TableDataset(frame, target='target')",
        )  # fmt: skip
    if not isinstance(data, (tuple, list)):
        return data
    if any(is_frame(x) or is_series(x) for x in data):
        names = [f"input {i}" for i in range(len(data) - 1)] + ["the target"]
        converted = (is_frame(x) or is_series(x) for x in data)
        data = tuple(
            frame_array(x, name) if frame else x for x, name, frame in zip(data, names, converted, strict=True)
        )
    arrays = [isinstance(x, np.ndarray) or is_tensor(x) for x in data]
    if any(arrays) and not all(arrays):
        raise ArgumentError(
            "the data are arrays and something else",
            expected="a dataset, or a tuple of arrays or tensors of one length",
            got=f"({', '.join(type(x).__name__ for x in data[:8])})", hint="np.asarray(...) of what is a list",
        )  # fmt: skip
    return TensorDataset(*data) if all(arrays) else data
