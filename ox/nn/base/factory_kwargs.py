"""What every layer's constructor has: `device=` and `dtype=` as in PyTorch, and errors that name the user's line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from ox.errors import ArgumentError, CallError, DTypeError, OxError


def with_factory_kwargs(init: Callable[..., None]) -> Callable[..., None]:
    """A constructor that also takes `device` and `dtype`, where it does not by itself: made, then moved."""
    taken = inspect.signature(init).parameters
    added = [name for name in ("device", "dtype") if name not in taken]
    if any(p.kind is p.VAR_KEYWORD for p in taken.values()):
        added = []

    places = [p.name for p in taken.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    typed = "dtype" in taken and taken["dtype"].kind is inspect.Parameter.KEYWORD_ONLY
    ours = init.__module__.startswith("ox.") and not any(p.kind is p.VAR_POSITIONAL for p in taken.values())
    further = ["device", "dtype"] if typed and ours else []  # by position, too, behind the rest
    shown = _with_positional(taken, further) if further else inspect.Signature(list(taken.values()))

    @wraps(init)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
        if further and len(args) >= len(places):
            args = _positional_to_keywords(type(self).__name__, args, len(places) - 1, further, kwargs)
        wanted = {name: kwargs.pop(name) for name in added if name in kwargs}
        try:
            init(self, *args, **kwargs)
        except OxError:
            raise
        except (TypeError, ValueError) as error:
            name, kind = type(self).__name__, DTypeError if isinstance(error, TypeError) else ArgumentError
            got = ", ".join([*map(repr, args), *(f"{key}={value!r}" for key, value in kwargs.items())])
            plain = [p.replace(annotation=p.empty) for p in shown.parameters.values()][1:]
            raise kind(
                f"{name} cannot be made: {error}", expected=f"{name}{inspect.Signature(plain)}", got=f"{name}({got})"
            ) from error
        wanted = {name: value for name, value in wanted.items() if value is not None}
        if wanted:
            self.to(**wanted)

    if further:
        wrapper.__signature__ = shown  # type: ignore[attr-defined]
    return wrapper


def _positional_to_keywords(
    layer: str, args: tuple[Any, ...], count: int, further: list[str], kwargs: dict[str, Any]
) -> Any:
    """The positions before `device` and `dtype`, which are put among the keywords."""
    for name, value in zip(further, args[count:], strict=False):
        if name in kwargs:
            raise CallError(f"{layer} got {name!r} twice")
        kwargs[name] = value
    return args[:count] + args[count + len(further) :]


def _with_positional(taken: Mapping[str, inspect.Parameter], further: list[str]) -> inspect.Signature:
    """The signature with `device` and `dtype` behind what is given by position."""
    first = [p for p in taken.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    last = [p for p in taken.values() if p.kind is not p.POSITIONAL_OR_KEYWORD and p.name not in further]
    moved = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None) for name in further]
    return inspect.Signature([*first, *moved, *last])
