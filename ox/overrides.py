"""`torch.overrides`, as far as code copied from PyTorch asks it: nothing overrides functions by `__torch_function__`.

A class of your own that has one is a plain tensor to ox's functions; what it changes stands in a function of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ox.core.lazy import missing_attribute_error
from ox.tensors.tensor import Tensor

__all__ = [
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "is_tensor_like",
]


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """False. `torch.overrides.has_torch_function`."""
    return False


def has_torch_function_unary(obj: Any) -> bool:
    """False. `torch.overrides.has_torch_function_unary`."""
    return False


def has_torch_function_variadic(*args: Any) -> bool:
    """False. `torch.overrides.has_torch_function_variadic`."""
    return False


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Calls the function as it is. `torch.overrides.handle_torch_function`."""
    return public_api(*args, **kwargs)


def is_tensor_like(inp: Any) -> bool:
    """Whether it is a tensor. `torch.overrides.is_tensor_like`."""
    return isinstance(inp, Tensor)


def __getattr__(name: str) -> Any:
    raise missing_attribute_error(__name__, name)
