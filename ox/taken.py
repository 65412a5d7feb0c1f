"""What a layer or function says of an array, a list or None where it takes tensors, and of a name that is not there."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any, TypeVar, cast

import numpy as np

from ox.doors import missing
from ox.errors import DTypeError
from ox.ops import operator
from ox.ops.explain import place
from ox.ops.mode import MODE
from ox.where import line_at

F = TypeVar("F", bound=Callable[..., Any])
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def not_tensors(name: str, error: AttributeError) -> DTypeError | None:
    """The error to raise where ox's own code asked something that is no tensor for what tensors have; None for others.

    `name` is the function's; a layer of ox that is running goes before it. All is looked for after the fact, so that
    calls that succeed pay nothing.
    """
    given, tensor = error.obj, operator.tensor_class
    asked = error.name == "array" or hasattr(tensor, error.name or "")
    kind = type(given)
    if error.name == "array" and getattr(given, "is_sparse", False):
        return DTypeError(
            f"{name} takes dense tensors, got a sparse one",
            where=place(),
            got=f"a sparse tensor {list(getattr(given, 'shape', ()))}",
            hint="x.to_dense(); @, mm, mv, addmm and ox.sparse take sparse matrices",
        )  # fmt: skip
    if not asked or not _asked_by_ox(error) or isinstance(given, tensor) or kind.__module__.startswith("ox."):
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


def _asked_at(error: AttributeError) -> tuple[str, int] | None:
    """File and line that asked for the attribute. Where a `__getattr__` has refused it, who asked is one further up."""
    trace, asked = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_name != "__getattr__":
            asked = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    return asked


def _asked_by_ox(error: AttributeError) -> bool:
    asked = _asked_at(error)
    return asked is not None and asked[0].startswith(_HERE)


def note_missing(error: AttributeError) -> None:
    """Add to an error about a name that a tensor or a module of ox has not where it was asked for, and what there is.

    The error stays what it is; one about an object of the user's own gets nothing.
    """
    given, name = error.obj, error.name
    if name is None or hasattr(error, "__notes__") or _asked_by_ox(error):
        return
    if isinstance(given, operator.tensor_class):
        hint = missing("ox", name) or (f"ox.{name}(x)" if name in sys.modules["ox"].__all__ else None)
    elif isinstance(given, ModuleType) and (given.__name__ == "ox" or given.__name__.startswith("ox.")):
        hint = missing(given.__name__, name)
    else:
        return
    error.add_note(f"  in   {line_at(_asked_at(error))}")
    if hint is None or hint not in str(error):
        error.add_note(f"  try  {hint or 'docs/from-pytorch.md, which says what is left out, and why'}")


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
