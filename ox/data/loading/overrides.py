"""Detects whether a faster method still agrees with a method that a subclass may have overridden."""

from __future__ import annotations

from typing import Any

ITEM_METHODS = ("__getitem__", "__getitems__")  # the methods that `batch` of a dataset replaces


def has_valid_shortcut(thing: Any, fast: str, *methods: str) -> bool:
    """Whether `thing` has the method `fast`, and no subclass of the class that defines it overrides one of
    `methods`."""
    if fast in getattr(thing, "__dict__", ()):
        return True
    for cls in type(thing).__mro__:
        if fast in vars(cls):
            return True
        if any(method in vars(cls) for method in methods):
            return False
    return hasattr(thing, fast)
