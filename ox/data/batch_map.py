"""A function over all tensors of a batch, which may lie in tuples, lists, dicts, named tuples and dataclasses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from ox.core.tensor import is_tensor


def map_tensors(function: Callable[[Any], Any], batch: Any, others: Callable[[Any], Any] | None = None) -> Any:
    """Applies `function` to each tensor of a batch; other values stay unchanged.

    Args:
        others: applied to values that are neither tensors nor contain any.
    """
    if is_tensor(batch):
        return function(batch)
    if isinstance(batch, Mapping):
        made = {key: map_tensors(function, value, others) for key, value in batch.items()}
        return made if type(batch) is dict else mapping_like(batch, made)
    if isinstance(batch, (tuple, list)):
        parts = [map_tensors(function, value, others) for value in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    if is_dataclass(batch) and not isinstance(batch, type):
        changed = {f.name: map_tensors(function, getattr(batch, f.name), others) for f in fields(batch) if f.init}
        return replace(batch, **changed)
    return batch if others is None else others(batch)


def mapping_like(batch: Any, made: dict[Any, Any]) -> Any:
    """A mapping of the same class; a plain dict if that class cannot be constructed from one."""
    try:
        return type(batch)(made)
    except TypeError:
        return made
