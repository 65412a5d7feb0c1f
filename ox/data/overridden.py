"""Faster ways to what a method gives, and subclasses that replace the method."""

from __future__ import annotations

from typing import Any

SAMPLES = ("__getitem__", "__getitems__")  # what `batch` of a dataset is faster than


def speaks_for(thing: Any, fast: str, *methods: str) -> bool:
    """Whether `thing` has the method `fast`, and no class below the one that defines it replaces what it stands for."""
    if fast in getattr(thing, "__dict__", ()):
        return True
    for cls in type(thing).__mro__:
        if fast in vars(cls):
            return True
        if any(method in vars(cls) for method in methods):
            return False
    return hasattr(thing, fast)
