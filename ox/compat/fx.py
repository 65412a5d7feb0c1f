"""`torch.fx`, as far as models use it: ox has no symbolic tracing, so marks for a tracer have no effect."""

from __future__ import annotations

from typing import Any

from ox.core.lazy import missing_attribute_error

__all__ = ["Proxy", "wrap"]


def wrap(fn_or_name: Any) -> Any:
    """What it is given: a function, or the name of one. `torch.fx.wrap`."""
    return fn_or_name


class Proxy:
    """`torch.fx.Proxy`, for `isinstance`. It has no instances."""


def __getattr__(name: str) -> Any:
    raise missing_attribute_error(__name__, name)
