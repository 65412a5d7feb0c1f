"""`torch._dynamo`, as far as scripts name it; `ox.compile` has no switches beyond its arguments."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ox.compiler import allow_in_graph, compile, disable, is_compiling, mark_dynamic, reset
from ox.compiler.module import OptimizedModule
from ox.core.lazy import missing_attribute_error

__all__ = [
    "OptimizedModule",
    "allow_in_graph",
    "config",
    "disable",
    "is_compiling",
    "mark_dynamic",
    "optimize",
    "reset",
]

config = SimpleNamespace(suppress_errors=False, verbose=False, cache_size_limit=8, optimize_ddp=True)


def optimize(backend: Any = "inductor", *, nopython: bool = False, dynamic: bool | None = None, **_: Any) -> Any:
    """`ox.compile` as a decorator. `torch._dynamo.optimize`."""
    return compile(backend=backend, fullgraph=nopython, dynamic=dynamic)


def __getattr__(name: str) -> Any:
    raise missing_attribute_error(__name__, name)
