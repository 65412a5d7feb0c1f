"""Tensors inside of lists, tuples, dicts and dataclasses: their names, and the same structure around other ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any

from numpy import ndarray

from ox.core.tensor import is_tensor


def parts(tree: Any) -> list[tuple[str, Any]] | None:
    """What a structure holds, by key, field or place; None for what is none."""
    if isinstance(tree, Mapping):
        return [(str(key), value) for key, value in tree.items()]
    if is_dataclass(tree) and not isinstance(tree, type):
        return [(field.name, getattr(tree, field.name)) for field in fields(tree)]
    if isinstance(tree, (list, tuple)):
        return [(str(i), value) for i, value in enumerate(tree)]
    return None


def leaves(tree: Any, name: str, parts: Callable[[Any], list[tuple[str, Any]] | None] = parts) -> Iterator[Any]:
    """Names and values, ``cache_0_key`` for ``tree[0]["key"]`` of a tree called `cache`; what is None is left out.

    Args:
        parts: takes a structure apart.
    """
    found = parts(tree)
    if found is not None:
        for key, value in found:
            yield from leaves(value, f"{name}_{key}" if name else key, parts)
    elif tree is not None:
        yield name, tree


def filled(tree: Any, values: Iterator[Any], parts: Callable[[Any], list[tuple[str, Any]] | None] = parts) -> Any:
    """The same structure around other values, in the order of `leaves`."""
    found = parts(tree)
    if found is None:
        return None if tree is None else next(values)
    made = [filled(value, values, parts) for _, value in found]
    if isinstance(tree, Mapping):
        named = dict(zip(tree, made, strict=True))
        return named if type(tree) is dict else type(tree)(named)  # type: ignore[call-arg]
    if isinstance(tree, (list, tuple)):
        return type(tree)(*made) if hasattr(tree, "_fields") else type(tree)(made)
    other = copy(tree)
    for (field, _), value in zip(found, made, strict=True):
        object.__setattr__(other, field, value)  # also of one that is frozen
    return other


def parts_of_example(tree: Any) -> list[tuple[str, Any]] | None:
    """As `parts`, but a list of numbers is one value: an array that is written out."""
    found = parts(tree)
    if isinstance(tree, (list, tuple)) and not any(_holds_arrays(value) for _, value in found or ()):
        return None
    return found


def _holds_arrays(tree: Any) -> bool:
    if is_tensor(tree) or isinstance(tree, (ndarray, Mapping)) or is_dataclass(tree):
        return True
    return isinstance(tree, (list, tuple)) and any(map(_holds_arrays, tree))
