"""What every layer's constructor has: `device=` and `dtype=` as in PyTorch, and errors that name the user's line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from ox.errors import ArgumentError, DTypeError, OxError
from ox.where import users_line


def placed(init: Callable[..., None]) -> Callable[..., None]:
    """A constructor that also takes `device` and `dtype`, where it does not by itself: made, then moved."""
    taken = inspect.signature(init).parameters
    added = [name for name in ("device", "dtype") if name not in taken]
    if any(p.kind is p.VAR_KEYWORD for p in taken.values()):
        added = []

    @wraps(init)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        wanted = {name: kwargs.pop(name) for name in added if name in kwargs}
        try:
            init(self, *args, **kwargs)
        except OxError as error:
            error.where = error.where or users_line(2)
            raise
        except (TypeError, ValueError) as error:
            name, kind = type(self).__name__, DTypeError if isinstance(error, TypeError) else ArgumentError
            got = ", ".join([*map(repr, args), *(f"{key}={value!r}" for key, value in kwargs.items())])
            plain = [p.replace(annotation=p.empty) for p in taken.values()][1:]
            raise kind(
                f"{name} cannot be made: {error}",
                where=users_line(2),
                expected=f"{name}{inspect.Signature(plain)}",
                got=f"{name}({got})",
            ) from error
        wanted = {name: value for name, value in wanted.items() if value is not None}
        if wanted:
            self.to(**wanted)

    return made
