"""`torch.fx`, as far as models name it: nothing is traced symbolically, so marks for its tracer do nothing."""

from __future__ import annotations

from typing import Any

from ox.core.lazy import missing_attribute_error

__all__ = ["Proxy", "wrap"]


def wrap(fn_or_name: Any) -> Any:
    """What it is given: a function, or the name of one. `torch.fx.wrap`."""
    return fn_or_name


class Proxy:
    """Nothing is one. `torch.fx.Proxy`, for `isinstance`."""


def __getattr__(name: str) -> Any:
    raise missing_attribute_error(__name__, name)
