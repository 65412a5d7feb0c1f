"""`device=` and `dtype=` of every layer's constructor, as PyTorch has them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any


def placed(init: Callable[..., None]) -> Callable[..., None]:
    """A constructor that also takes `device` and `dtype`, where it does not by itself: made, then moved."""
    taken = inspect.signature(init).parameters
    added = [name for name in ("device", "dtype") if name not in taken]
    if not added or any(p.kind is p.VAR_KEYWORD for p in taken.values()):
        return init

    @wraps(init)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        wanted = {name: kwargs.pop(name) for name in added if name in kwargs}
        init(self, *args, **kwargs)
        wanted = {name: value for name, value in wanted.items() if value is not None}
        if wanted:
            self.to(**wanted)

    return made
