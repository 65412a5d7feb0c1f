"""`torch.nn.utils.stateless`: a module called with other parameters than its own; `ox.func` does it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ox.nn.base.module import Module
from ox.tensors.tensor import Tensor


def functional_call(
    module: Module,
    parameters_and_buffers: Mapping[str, Tensor],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """`ox.func.functional_call` under its older name."""
    from ox.func.modules import functional_call as call

    return call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)
