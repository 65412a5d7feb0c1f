"""Batches of plain arrays from a dataset, in its own order: for models that are not ox's, such as ONNX files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ox.data import DataLoader
from ox.devices import cpu
from ox.errors import RecipeError
from ox.train.batch import describe, is_tensor, named_parts, ordered, target_name, target_of

Array = np.ndarray[Any, Any]


def batches(
    dataset: Any, size: int, collate: Callable[[list[Any]], Any] | None = None, order: Any = None
) -> Iterator[tuple[list[Array], Array | None]]:
    """The inputs of batches of at most `size` samples, one array an input, and their target; None where there is none.

    Args:
        collate: the recipe's own.
        order: the names of the inputs in their order, or the model that takes them; for batches with names.
    """
    for batch in DataLoader(dataset, batch_size=size, collate_fn=collate):
        yield inputs_of(batch, order)


def inputs_of(batch: Any, order: Any = None) -> tuple[list[Array], Array | None]:
    """One batch taken apart; as `batches`."""
    target = target_of(batch)
    parts = named_parts(batch)
    if parts is None:
        several = list(batch) if isinstance(batch, (tuple, list)) else [batch]
        inputs = several[:-1] or several
    elif hasattr(order, "forward"):
        inputs, _ = ordered(order, batch)
    else:
        inputs = _by_name(parts, order or ())
    return [_array(x, batch) for x in inputs], plain(target) if is_tensor(target) else None


def _by_name(parts: dict[str, Any], names: Sequence[str]) -> list[Any]:
    if names and set(names) <= parts.keys():
        return [parts[name] for name in names]
    held = [x for key, x in parts.items() if key != target_name(parts) and is_tensor(x)]
    if len(held) != max(1, len(names)) or len(held) > 1:
        raise RecipeError(
            "the batch's names are not those of the model's inputs",
            expected=", ".join(names) or "inputs = {...} on the page, in the model's order", got=describe(parts),
        )  # fmt: skip
    return held


def _array(x: Any, batch: Any) -> Array:
    if not is_tensor(x):
        raise RecipeError(
            "an input of the batch is no tensor", got=describe(batch),
            hint="collate() on the page that makes one, or example_inputs(count) for what the model takes",
        )  # fmt: skip
    return cpu(x.array)


def plain(x: Any) -> Array:
    """A tensor, array or number as a NumPy array."""
    return cpu(x.array) if hasattr(x, "node") else np.asarray(x)
