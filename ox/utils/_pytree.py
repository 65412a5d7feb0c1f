"""`torch.utils._pytree`, as far as scripts use it: nested lists, tuples and dicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ox.autograd.pytree import flatten, leaves_of, map_tree

__all__ = ["tree_flatten", "tree_leaves", "tree_map", "tree_map_only", "tree_unflatten"]

tree_leaves = leaves_of


def tree_flatten(tree: Any) -> tuple[list[Any], Any]:
    """The leaves in order, and what `tree_unflatten` needs. `torch.utils._pytree.tree_flatten`."""
    return flatten(tree)


def tree_unflatten(leaves: Any, treespec: Any) -> Any:
    """The structure that `tree_flatten` took apart, with other leaves. `torch.utils._pytree.tree_unflatten`."""
    return treespec(list(leaves))


def tree_map(func: Callable[..., Any], tree: Any) -> Any:
    """The same structure with `func` of each leaf. `torch.utils._pytree.tree_map`."""
    return map_tree(func, tree)


def tree_map_only(kind: Any, func: Callable[..., Any], tree: Any) -> Any:
    """`tree_map` for leaves of a class; the others stay. `torch.utils._pytree.tree_map_only`."""
    return map_tree(lambda leaf: func(leaf) if isinstance(leaf, kind) else leaf, tree)
