"""What a layer or function says of an array, a list or None where it takes tensors."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from ox.errors import DTypeError
from ox.ops import operator
from ox.ops.explain import place
from ox.ops.mode import MODE

F = TypeVar("F", bound=Callable[..., Any])
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def not_tensors(name: str, error: AttributeError) -> DTypeError | None:
    """The error to raise where ox's own code asked something that is no tensor for what tensors have; None for others.

    `name` is the function's; a layer of ox that is running goes before it. All is looked for after the fact, so that
    calls that succeed pay nothing.
    """
    given, trace = error.obj, error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    ours = trace is not None and trace.tb_frame.f_code.co_filename.startswith(_HERE)
    tensor = operator.tensor_class
    asked = error.name == "array" or hasattr(tensor, error.name or "")
    kind = type(given)
    if not ours or not asked or isinstance(given, tensor) or kind.__module__.startswith("ox."):
        return None
    modules = MODE.get().modules
    if modules and type(modules[-1]).__module__.startswith("ox.nn."):
        name = type(modules[-1]).__name__
    hint = None if given is None else "ox.tensor(x)"
    if isinstance(given, np.ndarray):
        hint = "ox.from_numpy(x)"
    elif kind.__module__ == "torch":
        hint = "ox.from_dlpack(x)"
    article = "an" if kind.__name__[0] in "aeiou" else "a"
    got = {type(None): "None", np.ndarray: "a NumPy array"}.get(kind, f"{article} {kind.__name__}")
    return DTypeError(f"{name} takes tensors, got {got}", where=place(), hint=hint)


def takes_tensors(function: F) -> F:
    """A function that says so when it gets something else; for those to whose cost one more call is nothing."""

    @wraps(function)
    def made(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except AttributeError as error:
            told = not_tensors(function.__name__, error)
            if told is None:
                raise
            raise told from None

    return cast(F, made)
