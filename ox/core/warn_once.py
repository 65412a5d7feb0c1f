"""Switches of PyTorch without an effect in ox: each warns once, at the script's line."""

from __future__ import annotations

import warnings

from ox.call_site import users_place

_warned: set[str] = set()


def no_effect(name: str, why: str) -> None:
    """Warn, once for each name in a process, that a call changes nothing."""
    if name in _warned:
        return
    _warned.add(name)
    file, line = users_place() or (__file__, 1)
    warnings.warn_explicit(f"{name} changes nothing: {why} (this warning appears once)", UserWarning, file, line)
