"""What does nothing here, or something else than in PyTorch: said once, where a script does it."""

from __future__ import annotations

import warnings

from ox.where import users_place

_said: set[str] = set()


def no_effect(name: str, why: str) -> None:
    """Warn, once for each name in a process, that a call changes nothing."""
    say_once(name, f"changes nothing: {why}")


def say_once(name: str, what: str) -> None:
    """Warn, once for each name in a process, of what a call does otherwise than in PyTorch."""
    if name in _said:
        return
    _said.add(name)
    file, line = users_place(2) or (__file__, 1)
    warnings.warn_explicit(f"{name} {what} (said once)", UserWarning, file, line)
