"""`ox.compile`: `recording/` records a call while it runs and makes of it what later calls run, `execution/` guards and
runs that in an engine. `torch.compile` and `torch.compiler`. Imports ox.nn, ox.engines and floors below."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ox.compiler.compiled import ALL, Compiled
from ox.compiler.dynamic import mark_dynamic
from ox.compiler.explanation import Explanation
from ox.compiler.module import OptimizedModule
from ox.compiler.recording.capture import Capture
from ox.core.lazy import missing_attribute_error
from ox.core.mode import MODE, switch_mode
from ox.errors import ArgumentError
from ox.nn.base.module import Module

__all__ = [
    "allow_in_graph",
    "compile",
    "cudagraph_mark_step_begin",
    "disable",
    "explain",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "mark_dynamic",
    "reset",
]


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    activation_memory_budget: float = 1.0,
) -> Any:
    """A module or function whose calls are recorded, once for each kind of call, and then run as graphs.
    `torch.compile`; also a decorator, with arguments or without.

    Args:
        model: a module, or a function: of a forward, or of a whole training step.
        fullgraph: raise CompileError where something stays eager.
        dynamic: sizes may change from call to call.
        backend: "native" (the default), "onnxruntime", "openvino", "eager", or an engine of your own.
        mode: PyTorch's, of which none has an effect.
        options: what the engine is given by name.
        name: what messages call the function; its own name by default.
        disable: give the model back as it is.
        recompile_limit: recordings before calls of new kinds stay eager; 8 by default. With `fullgraph`, such a call
            raises CompileError.
        isolate_recompiles: PyTorch's; without effect, because what one `ox.compile` recorded counts for no other.
        activation_memory_budget: the share, 0 to 1, of the bytes of intermediate values that a call may keep for a
            backward outside of it; below 1, activations, casts and movement run again there. PyTorch's
            `torch._functorch.config.activation_memory_budget`.

    Raises:
        ArgumentError: no module and no function, or a limit that is no count, or a budget that is no share.
        CompileError: no such backend.
    """
    chosen: dict[str, Any] = {
        "fullgraph": fullgraph,
        "dynamic": dynamic,
        "backend": backend,
        "options": options,
        "name": name,
        "recompile_limit": recompile_limit,
        "activation_memory_budget": activation_memory_budget,
    }
    if model is None:
        return lambda function: compile(function, mode=mode, disable=disable, **chosen)
    if not callable(model):
        raise ArgumentError("this is no module and no function", got=type(model).__name__)
    if disable or isinstance(model, Compiled | OptimizedModule):
        return model
    if isinstance(model, Module):
        return OptimizedModule(model, **chosen)
    return Compiled(model, **chosen)


def disable(fn: Any = None, recursive: bool = True, **_: Any) -> Any:
    """A decorator, with arguments or without, for a function that is not to be recorded: what calls it stays eager.
    With `recursive`, the modules that it calls stay eager as well. `torch.compiler.disable`."""
    if fn is None:
        return lambda function: disable(function, recursive)
    if not callable(fn):
        raise ArgumentError("this is no module and no function", got=type(fn).__name__)

    @wraps(fn)
    def eager(*args: Any, **kwargs: Any) -> Any:
        mode = MODE.get()
        if isinstance(mode.recording, Capture):
            mode.recording.give_up(f"{getattr(fn, '__qualname__', type(fn).__name__)} is marked with disable")
        if mode.parts is None or not recursive:
            return fn(*args, **kwargs)
        with switch_mode(parts=None):
            return fn(*args, **kwargs)

    return eager


def allow_in_graph(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` as it is: everything that is made of operators is in the graph. `torch.compiler.allow_in_graph`."""
    return fn


def is_compiling() -> bool:
    """Whether a call is being recorded now. `torch.compiler.is_compiling`."""
    return MODE.get().recording is not None


def is_dynamo_compiling() -> bool:
    """Whether a call is being recorded for `ox.compile` now. `torch.compiler.is_dynamo_compiling`."""
    return isinstance(MODE.get().recording, Capture)


def is_exporting() -> bool:
    """Whether a call is being recorded for a file now. `torch.compiler.is_exporting`."""
    recording = MODE.get().recording
    return recording is not None and not isinstance(recording, Capture)


def explain(model: Any) -> Explanation:
    """What was recorded for a compiled function or module, also for one that its `compile()` compiled in place.

    Raises:
        ArgumentError: it is not compiled.
    """
    compiled = model
    if isinstance(model, Module) and model._hooks is not None and model._hooks.compiled is not None:
        compiled = model._hooks.compiled
    elif isinstance(model, OptimizedModule):
        compiled = model._compiled
    if not isinstance(compiled, Compiled):
        raise ArgumentError("this is not compiled", got=type(model).__name__, expected="what ox.compile returned")
    return compiled.explain()


def reset() -> None:
    """Forget what all compiled functions and modules have recorded. `torch.compiler.reset`."""
    for made in list(ALL):
        made.reset()


def cudagraph_mark_step_begin() -> None:
    """Nothing: every call returns memory of its own. `torch.compiler.cudagraph_mark_step_begin`."""


def __getattr__(name: str) -> Any:
    raise missing_attribute_error(__name__, name)
