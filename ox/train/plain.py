"""A recipe without a page: of a model, a loss, an optimizer and data that are there already."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ox.data import TensorDataset, random_split
from ox.errors import ArgumentError
from ox.ops.explain import place
from ox.random import Generator
from ox.train.datasets import is_stream
from ox.train.options import Options
from ox.train.recipe import OPTIONS, Recipe
from ox.train.update import several

HELD_OUT = 0.1


def of_objects(
    model: Any,
    loss: Callable[[Any, Any], Any] | None = None,
    optimizer: Any = None,
    train_data: Any = None,
    validation_data: Any = HELD_OUT,
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
) -> tuple[Recipe, Options]:
    """What `Trainer` takes, as a recipe and options.

    Raises:
        ArgumentError: something is missing, or is not what it should be.
    """
    from ox.nn import Module

    if not isinstance(model, Module):
        raise ArgumentError("a Trainer needs a model", where=place(), expected="an ox.nn.Module", got=repr(type(model)))
    if train_data is None or (not callable(loss) and step is None):
        raise ArgumentError(
            f"a Trainer needs {'train_data' if train_data is None else 'a loss'}", where=place(),
            hint="Trainer(model, nn.CrossEntropyLoss(), optimizer, train_data)",
        )  # fmt: skip
    unknown = options.keys() - Options.__dataclass_fields__.keys()
    if unknown:
        known = ", ".join(Options.__dataclass_fields__)
        raise ArgumentError(f"a Trainer knows no option '{min(unknown)}'", where=place(), expected=known)
    there = not callable(optimizer) and bool(several(optimizer))
    if there and hasattr(several(optimizer)[0], "param_groups"):
        options.setdefault("lr", float(several(optimizer)[0].param_groups[0]["lr"]))
    settings = Options.of(OPTIONS, **options)
    parts = _parts(train_data, validation_data, held_back, settings.seed)
    page = ModuleType(type(model).__name__)
    vars(page).update(
        model=lambda: model,
        data=lambda: parts,
        loss=loss,
        defaults={},
        optimizer=(lambda model, lr: optimizer) if there else optimizer,
        scheduler=scheduler if callable(scheduler) or scheduler is None else (lambda optimizer, lr, steps: scheduler),
        collate=collate,
        sampler=_maker(sampler),
        batch_sampler=_maker(batch_sampler),
        augment=augment,
        step=step,
        validate=validate,
        metrics=metrics,
        best=best,
        sample=sample,
        labels=labels,
    )
    return Recipe(type(model).__name__.lower(), Path(sys.argv[0] or "python"), "", page), settings


def _maker(sampler: Any) -> Any:
    """A function of the dataset, as a page has one."""
    return (lambda dataset: sampler) if hasattr(sampler, "__iter__") else sampler


def _parts(train: Any, validation: Any, held_back: Any, seed: int) -> tuple[Any, ...]:
    """The datasets; `validation` may be the share of the training data that is set aside."""
    train = _dataset(train)
    if is_stream(train) and isinstance(validation, float):
        validation = None  # no share of it can be set aside
    if isinstance(validation, float):
        if not 0 < validation < 1:
            raise ArgumentError("validation_data is a dataset or a share between 0 and 1", got=str(validation))
        share, count = validation, len(train)
        train, validation = random_split(train, [1 - share, share], Generator(seed))
        if not len(train) or not len(validation):
            raise ArgumentError(
                f"{count} sample{'s' * (count != 1)} of train_data cannot be divided to validate on {share:g} of them",
                where=place(), hint="validation_data=(inputs, targets), or a dataset",
            )  # fmt: skip
    parts = (train, _dataset(validation))
    return parts if held_back is None else (*parts, _dataset(held_back))


def _dataset(data: Any) -> Any:
    """Arrays or tensors of one length as a dataset; a dataset as it is."""
    if not isinstance(data, (tuple, list)):
        return data
    arrays = [isinstance(x, np.ndarray) or hasattr(x, "node") for x in data]
    if any(arrays) and not all(arrays):
        raise ArgumentError(
            "the data are arrays and something else", where=place(),
            expected="a dataset, or a tuple of arrays or tensors of one length",
            got=f"({', '.join(type(x).__name__ for x in data[:8])})", hint="np.asarray(...) of what is a list",
        )  # fmt: skip
    return TensorDataset(*data) if all(arrays) else data
