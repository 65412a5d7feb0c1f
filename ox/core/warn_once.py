"""Warnings that appear once, at the script's line: of switches of PyTorch that have no effect in ox, for example."""

from __future__ import annotations

import warnings

from ox.call_site import users_place

_warned: set[str] = set()


def once(name: str, text: str) -> None:
    """Warn, once for each name in a process."""
    if name in _warned:
        return
    _warned.add(name)
    file, line = users_place() or (__file__, 1)
    warnings.warn_explicit(f"{text} (this warning appears once)", UserWarning, file, line)


def no_effect(name: str, why: str) -> None:
    """Warn, once for each name in a process, that a call changes nothing."""
    once(name, f"{name} changes nothing: {why}")
