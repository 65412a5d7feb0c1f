"""What code may ask tensors besides their shape, type and device: a recording is guarded on the answers."""

from __future__ import annotations

from types import CodeType
from typing import Any

from ox.core.memory_format import address
from ox.core.node import Node
from ox.tensors.tensor import Tensor

COMPARED = ("is_leaf", "grad_fn", "retains_grad", "stride", "is_contiguous", "storage_offset", "_is_view")
NOT_COMPARED = ("version", "_version", "data_ptr", "is_set_to", "is_pinned")  # another answer in nearly every call


def _code_of(name: str) -> CodeType:
    method: Any = getattr(Tensor, name)
    function: Any = method.fget if isinstance(method, property) else method
    code: CodeType = function.__code__
    return code


QUESTIONS = {_code_of(name): name for name in (*COMPARED, *NOT_COMPARED)}
ATTRIBUTES = frozenset(("_base", "_retain"))  # likewise, without a function that answers


def facts_of(tensor: Any) -> tuple[Any, ...]:
    """Whether it is a leaf, whether its gradient is retained, its strides, and where it begins in what it is a view
    of, in bytes."""
    base, array = tensor._base, tensor.array
    offset = None if base is None else address(array) - address(base.array)
    return isinstance(tensor.node, Node), tensor._retain, array.strides, offset
