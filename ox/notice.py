"""What PyTorch scripts switch and ox has nothing to switch: said once, where the script does it."""

from __future__ import annotations

import warnings

from ox.where import users_place

_said: set[str] = set()


def no_effect(name: str, why: str) -> None:
    """Warn, once for each name in a process, that a call changes nothing."""
    if name in _said:
        return
    _said.add(name)
    file, line = users_place(2) or (__file__, 1)
    warnings.warn_explicit(f"{name} changes nothing: {why} (said once)", UserWarning, file, line)
