"""`torch.compile` and `torch.compiler`: training is eager, so there is nothing to compile, to mark or to reset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ox.core.lazy import missing_attribute_error
from ox.core.mode import MODE
from ox.core.warn_once import no_effect
from ox.errors import ArgumentError

__all__ = [
    "allow_in_graph",
    "compile",
    "cudagraph_mark_step_begin",
    "disable",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "reset",
]


def compile(model: Any = None, **options: Any) -> Any:
    """`model` as it is; called without one, a decorator that gives the function as it is. `torch.compile`.

    Args:
        model: a module or a function.
        **options: PyTorch's, of which none has an effect.

    Raises:
        ArgumentError: no module and no function.
    """
    no_effect("ox.compile", "training is eager; ox.export.save writes a model as a graph")
    if model is None:
        return lambda function: function
    if not callable(model):
        raise ArgumentError("this is no module and no function", got=type(model).__name__)
    return model


def disable(fn: Any = None, recursive: bool = True, **_: Any) -> Any:
    """A decorator, with arguments or without, that does nothing. `torch.compiler.disable`."""
    return fn if fn is not None else lambda function: function


def allow_in_graph(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` as it is. `torch.compiler.allow_in_graph`."""
    return fn


def is_compiling() -> bool:
    """False. `torch.compiler.is_compiling`."""
    return False


is_dynamo_compiling = is_compiling


def is_exporting() -> bool:
    """Whether a call is being recorded for a file now. `torch.compiler.is_exporting`."""
    return MODE.get().recording is not None


def reset() -> None:
    """Nothing: no compiled code is kept. `torch.compiler.reset`."""


def cudagraph_mark_step_begin() -> None:
    """Nothing. `torch.compiler.cudagraph_mark_step_begin`."""


def __getattr__(name: str) -> Any:
    raise missing_attribute_error(__name__, name)
