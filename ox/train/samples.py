"""Batches of NumPy arrays from a dataset, in its order: for models outside of ox, such as ONNX files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ox.core.tensor import is_tensor
from ox.data import DataLoader
from ox.devices import cpu
from ox.errors import RecipeError
from ox.train.batch import describe, named_parts, ordered_inputs, target_name, target_of

Array = np.ndarray[Any, Any]


def batches(
    dataset: Any, size: int, collate: Callable[[list[Any]], Any] | None = None, order: Any = None
) -> Iterator[tuple[list[Array], Array | None]]:
    """The inputs of batches of at most `size` samples, one array per input, and their targets; None without a target.

    Args:
        collate: the `collate` of the recipe.
        order: the input names in order, or the model; for batches with names.
    """
    for batch in DataLoader(dataset, batch_size=size, collate_fn=collate):
        yield inputs_of(batch, order)


def inputs_of(batch: Any, order: Any = None) -> tuple[list[Array], Array | None]:
    """The inputs and the target of one batch; as in `batches`."""
    target = target_of(batch)
    parts = named_parts(batch)
    if parts is None:
        several = list(batch) if isinstance(batch, (tuple, list)) else [batch]
        inputs = several[:-1] or several
    elif hasattr(order, "forward"):
        inputs, _ = ordered_inputs(order, batch)
    else:
        inputs = _by_name(parts, order or ())
    return [_array(x, batch) for x in inputs], as_array(target) if is_tensor(target) else None


def _by_name(parts: dict[str, Any], names: Sequence[str]) -> list[Any]:
    if names and set(names) <= parts.keys():
        return [parts[name] for name in names]
    held = [x for key, x in parts.items() if key != target_name(parts) and is_tensor(x)]
    if len(held) != max(1, len(names)) or len(held) > 1:
        raise RecipeError(
            "the batch's names are not those of the model's inputs",
            expected=", ".join(names) or "inputs = {...} in the recipe file, in the model's order", got=describe(parts),
        )  # fmt: skip
    return held


def _array(x: Any, batch: Any) -> Array:
    if not is_tensor(x):
        raise RecipeError(
            "an input of the batch is no tensor", got=describe(batch),
            hint="define collate() to make one, or example_inputs(count) for the model's inputs",
        )  # fmt: skip
    return cpu(x.array)


def as_array(x: Any) -> Array:
    """A tensor, array or number as a NumPy array."""
    return cpu(x.array) if is_tensor(x) else np.asarray(x)
