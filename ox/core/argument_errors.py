"""Errors for an array, a list or None where a tensor is expected, and for attributes that do not exist."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any, TypeVar, cast

import numpy as np

from ox.call_site import is_ox, line_at
from ox.core import operator
from ox.core.lazy import missing
from ox.core.mode import MODULES
from ox.errors import DTypeError

F = TypeVar("F", bound=Callable[..., Any])


def not_tensor_error(name: str, error: AttributeError) -> DTypeError | None:
    """The error to raise when ox's own code read a tensor's attribute from an object that is no tensor; else None.

    `name` is the function's; a layer of ox that is running goes before it. All is looked for after the fact, so that
    calls that succeed pay nothing.
    """
    given, tensor = error.obj, operator.tensor_class
    asked = error.name == "array" or hasattr(tensor, error.name or "")
    kind = type(given)
    if error.name in ("array", "static_shape") and getattr(given, "is_sparse", False):
        return DTypeError(
            f"{name} takes dense tensors, got a sparse one",
            got=f"a sparse tensor {list(getattr(given, 'shape', ()))}",
            hint="x.to_dense(); @, mm, mv, addmm and ox.sparse take sparse matrices",
        )  # fmt: skip
    if not asked or not _accessed_by_ox(error) or isinstance(given, tensor) or kind.__module__.startswith("ox."):
        return None
    modules = MODULES.get()
    if modules and type(modules[-1]).__module__.startswith("ox.nn."):
        name = type(modules[-1]).__name__
    hint = None if given is None else "ox.tensor(x)"
    if isinstance(given, np.ndarray):
        hint = "ox.from_numpy(x)"
    elif kind.__module__ == "torch":
        hint = "ox.from_dlpack(x)"
    article = "an" if kind.__name__[0] in "aeiou" else "a"
    got = {type(None): "None", np.ndarray: "a NumPy array"}.get(kind, f"{article} {kind.__name__}")
    return DTypeError(f"{name} takes tensors, got {got}", hint=hint)


def _access_site(error: AttributeError) -> tuple[str, int] | None:
    """File and line of the attribute access; frames of `__getattr__` are skipped."""
    trace, asked = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_name != "__getattr__":
            asked = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    return asked


def _accessed_by_ox(error: AttributeError) -> bool:
    asked = _access_site(error)
    return asked is not None and is_ox(asked[0])


def add_missing_name_note(error: AttributeError) -> None:
    """Add the call site and the closest existing names to an error about a missing attribute of a tensor or module.

    The error stays what it is; one about an object of the user's own gets nothing.
    """
    given, name = error.obj, error.name
    if name is None or hasattr(error, "__notes__") or _accessed_by_ox(error):
        return
    if isinstance(given, operator.tensor_class):
        hint = missing("ox", name) or (f"ox.{name}(x)" if name in sys.modules["ox"].__all__ else None)
    elif isinstance(given, ModuleType) and (given.__name__ == "ox" or given.__name__.startswith("ox.")):
        hint = missing(given.__name__, name)
    else:
        return
    error.add_note(f"  in   {line_at(_access_site(error))}")
    if hint is None or hint not in str(error):
        error.add_note(f"  try  {hint or 'docs/from-pytorch.md lists what is left out, and why'}")


def check_tensor_arguments(function: F) -> F:
    """Decorator: a DTypeError for arguments that are not tensors. It adds a Python call: only for slow functions."""

    @wraps(function)
    def made(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except AttributeError as error:
            told = not_tensor_error(function.__name__, error)
            if told is None:
                raise
            raise told from None

    return cast(F, made)
