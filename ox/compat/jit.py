"""`torch.jit`: scripts import it, and ox needs no compiler to run or to export them.

`script` and `trace` return their argument, which computes the same; decorators for the compiler do nothing. Features
of compiled programs, such as their files, are refused: `ox.export.save` writes a model as a graph.
"""

from __future__ import annotations

import builtins
import contextlib
import typing
from collections.abc import Callable, Iterator
from typing import Any, Final

from ox.core.lazy import lazy_modules
from ox.core.mode import MODE
from ox.core.warn_once import no_effect
from ox.errors import ExportError, LoadError
from ox.nn.base.module import Module

__all__ = [
    "Attribute",
    "Error",
    "Final",
    "ScriptFunction",
    "ScriptModule",
    "TracerWarning",
    "annotate",
    "enable_onednn_fusion",
    "export",
    "fork",
    "freeze",
    "fuser",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "isinstance",
    "load",
    "onednn_fusion_enabled",
    "optimize_for_inference",
    "optimized_execution",
    "save",
    "script",
    "script_if_tracing",
    "script_method",
    "set_fusion_strategy",
    "strict_fusion",
    "trace",
    "trace_module",
    "unused",
    "wait",
]

_EAGER = "ox runs the code as it is written; ox.export.save writes a model as a graph"

ScriptModule = Module
isinstance = builtins.isinstance
set_fusion_strategy = enable_onednn_fusion = lambda *_: None


class ScriptFunction:
    """No function is one. `torch.jit.ScriptFunction`, for `isinstance`."""


class TracerWarning(Warning):
    """Never given. `torch.jit.TracerWarning`, for filters of warnings."""


class Error(RuntimeError):
    """Never raised. `torch.jit.Error`, for `except`."""


def script(obj: Any, *_: Any, **__: Any) -> Any:
    """`obj` as it is: a function, a module or a class. `torch.jit.script`."""
    no_effect("ox.jit.script", _EAGER)
    return obj


def trace(func: Any, example_inputs: Any = None, *_: Any, **__: Any) -> Any:
    """`func` as it is. `torch.jit.trace`."""
    no_effect("ox.jit.trace", _EAGER)
    return func


def trace_module(mod: Module, inputs: dict[str, Any], *_: Any, **__: Any) -> Module:
    """`mod` as it is. `torch.jit.trace_module`."""
    no_effect("ox.jit.trace_module", _EAGER)
    return mod


def freeze(mod: Module, *_: Any, **__: Any) -> Module:
    """`mod` as it is. `torch.jit.freeze`."""
    return mod


optimize_for_inference = freeze


def export(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` as it is; a decorator for the compiler. `torch.jit.export`."""
    return fn


unused = script_method = script_if_tracing = interface = _overload = _overload_method = _script_if_tracing = export


def ignore(drop: Any = False, **_: Any) -> Any:
    """A decorator, with an argument or without, that does nothing. `torch.jit.ignore`."""
    return drop if callable(drop) else export


def is_scripting() -> bool:
    """False. `torch.jit.is_scripting`."""
    return False


def is_tracing() -> bool:
    """Whether a call is being recorded for a file now. `torch.jit.is_tracing`."""
    return MODE.get().recording is not None


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value. `torch.jit.annotate`."""
    return the_value


class Attribute(typing.NamedTuple):
    """A value with its type. `torch.jit.Attribute`."""

    value: Any
    type: Any


def onednn_fusion_enabled() -> bool:
    """False. `torch.jit.onednn_fusion_enabled`."""
    return False


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls the function now, as eager PyTorch does. `torch.jit.fork`."""
    return func(*args, **kwargs)


def wait(future: Any) -> Any:
    """What `fork` gave. `torch.jit.wait`."""
    return future


@contextlib.contextmanager
def optimized_execution(should_optimize: bool = True) -> Iterator[None]:
    """A block in which nothing differs. `torch.jit.optimized_execution`."""
    yield


fuser = strict_fusion = optimized_execution


def save(m: Any, f: Any, *_: Any, **__: Any) -> None:
    """Refused: `torch.jit.save` writes a program that only PyTorch runs.

    Raises:
        ExportError: always; it names `ox.export.save`.
    """
    raise ExportError(
        "there is no TorchScript to save",
        hint="ox.export.save(model, 'model.onnx', example) for a graph, ox.save(model.state_dict(), path) for weights",
    )


def load(f: Any, *_: Any, **__: Any) -> Any:
    """Refused: TorchScript's files hold a program that only PyTorch runs.

    Raises:
        LoadError: always; it names `ox.export.load`.
    """
    raise LoadError(
        f"{f} is TorchScript, which only PyTorch runs",
        hint="where PyTorch is, torch.onnx.export writes it as ONNX; ox.export.load reads that as a module",
    )  # fmt: skip


__getattr__, __dir__ = lazy_modules(__name__)
