"""Modules without initialization: `torch.nn.utils.skip_init`."""

from __future__ import annotations

from typing import Any, TypeVar

from ox.nn import init
from ox.nn.base.module import Module

M = TypeVar("M", bound=Module)


def skip_init(module_cls: type[M], *args: Any, **kwargs: Any) -> M:
    """``module_cls(*args, **kwargs)`` without drawing initial values, which a checkpoint will overwrite: parameters are
    zeros. `torch.nn.utils.skip_init`; `device` is where they live."""
    device = kwargs.pop("device", None)
    with init.skipped():
        made = module_cls(*args, **kwargs)
    return made if device is None else made.to(device=device)
