"""`torch._dynamo`, as far as scripts switch it: there is no compiler, so every switch may be set and does nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ox.compiler import allow_in_graph, disable, is_compiling, reset
from ox.core.lazy import missing_attribute_error

__all__ = ["allow_in_graph", "config", "disable", "is_compiling", "optimize", "reset"]

config = SimpleNamespace(suppress_errors=False, verbose=False, cache_size_limit=8, optimize_ddp=True)


def optimize(*_: Any, **__: Any) -> Any:
    """A decorator that does nothing. `torch._dynamo.optimize`."""
    return lambda function: function


def __getattr__(name: str) -> Any:
    raise missing_attribute_error(__name__, name)
