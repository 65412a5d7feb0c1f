"""Nested lists, tuples and dicts of tensors: taking them apart and putting them together again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Rebuild = Callable[[list[Any]], Any]


def flatten(tree: Any) -> tuple[list[Any], Rebuild]:
    """The leaves in order, and a function that makes the same structure of as many other leaves."""
    leaves: list[Any] = []
    form = _form(tree, leaves)
    return leaves, lambda others: _rebuild(form, iter(others))


def leaves_of(tree: Any) -> list[Any]:
    return flatten(tree)[0]


def map_tree(function: Callable[..., Any], tree: Any) -> Any:
    """The same structure with `function` of each leaf."""
    leaves, rebuild = flatten(tree)
    return rebuild([function(leaf) for leaf in leaves])


def is_branch(tree: Any) -> bool:
    return isinstance(tree, (list, tuple, Mapping))


def _form(tree: Any, leaves: list[Any]) -> Any:
    if isinstance(tree, Mapping):
        return type(tree), {name: _form(value, leaves) for name, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree), [_form(value, leaves) for value in tree]
    leaves.append(tree)
    return None


def _rebuild(form: Any, leaves: Any) -> Any:
    if form is None:
        return next(leaves)
    kind, children = form
    if isinstance(children, dict):
        filled = {name: _rebuild(child, leaves) for name, child in children.items()}
        return filled if kind is dict else kind(filled)
    several = [_rebuild(child, leaves) for child in children]
    return kind(*several) if hasattr(kind, "_fields") else kind(several)


def prefixed(prefix: Any, tree: Any, what: str) -> list[Any]:
    """For each leaf of `tree` the entry of `prefix`, which has its structure or stops earlier.

    Raises:
        ArgumentError: another structure.
    """
    from ox.errors import ArgumentError

    if not is_branch(prefix):
        return [prefix] * len(leaves_of(tree))
    same = is_branch(tree) and len(prefix) == len(tree)
    if not same or isinstance(prefix, Mapping) != isinstance(tree, Mapping):
        raise ArgumentError(
            f"{what} has another structure than what it is for",
            expected=f"one entry, or {len(tree) if is_branch(tree) else 1}",
            got=repr(prefix),
        )
    if isinstance(prefix, Mapping):
        return [entry for name in tree for entry in prefixed(prefix[name], tree[name], what)]
    return [entry for p, t in zip(prefix, tree, strict=True) for entry in prefixed(p, t, what)]
