"""Sizes that change from call to call: marks on tensors, and what differs between two signatures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import MethodType
from typing import Any

import numpy as np

from ox.compiler.signature import by_value
from ox.tensors.tensor import Tensor


def mark_dynamic(tensor: Tensor, index: Any) -> None:
    """Declare that the size of one dimension, or of several, changes from call to call: calls with other sizes do not
    count to the limit of recordings. `torch._dynamo.mark_dynamic`.

    Args:
        tensor: an argument of the compiled call.
        index: an int, or a list or tuple of them.
    """
    chosen = [index] if isinstance(index, int) else list(index)
    tensor._dynamic = {*getattr(tensor, "_dynamic", ()), *chosen}  # type: ignore[attr-defined]


SHARED = 6  # the place in a signature of what `sharing` gave


def _is_tensor(part: Any) -> bool:
    return isinstance(part, tuple) and len(part) == 4 and isinstance(part[1], np.dtype) and isinstance(part[0], tuple)


def sizes_left_out(key: Any, tensors: Sequence[Tensor], dynamic: bool | None) -> Any:
    """A signature with None in place of the sizes that may change: those that are marked; of each tensor the first,
    which is the batch; with `dynamic` all, and where that is False only what is marked.

    Args:
        tensors: those that the signature describes, in order, each once.
    """
    shared = key[SHARED]  # for each tensor of the signature the number of the first that it is
    if shared is not None:
        numbers = {first: i for i, first in enumerate(sorted(set(shared)))}
        tensors = [tensors[numbers[first]] for first in shared]
    return _left_out(key, iter(tensors), dynamic)


def _left_out(key: Any, tensors: Iterator[Tensor], dynamic: bool | None) -> Any:
    if _is_tensor(key):
        sizes, marked = key[0], getattr(next(tensors), "_dynamic", ())
        changing = {i % len(sizes) for i in marked} if sizes else set()
        if dynamic is None:
            changing.add(0)
        return tuple([None if dynamic or i in changing else n for i, n in enumerate(sizes)]), *key[1:]
    return tuple([_left_out(part, tensors, dynamic) for part in key]) if isinstance(key, tuple) else key


class Sizes:
    """How often calls of one kind were recorded, which differ in sizes alone, and which sizes came once.

    The first few sizes are recorded at once. After those, a size is recorded when it comes for the second time: where
    each call has another one, calls stay as fast as eager ones.
    """

    AT_ONCE = 4
    MOST_WAITING = 1024

    def __init__(self) -> None:
        self.recorded = 0
        self.most = 0  # recordings of one size
        self._waiting: set[Any] = set()

    def waits(self, key: Any, known: bool) -> bool:
        """Whether a call of this signature is better not recorded yet; one that is `known` was recorded before."""
        if known or self.recorded < self.AT_ONCE or key in self._waiting:
            self._waiting.discard(key)
            return False
        if len(self._waiting) >= self.MOST_WAITING:
            self._waiting.clear()
        self._waiting.add(key)
        return True


def _differences(one: Any, other: Any, path: str) -> Iterator[str]:
    if _is_tensor(one) and _is_tensor(other):
        (shape, dtype, constant, memory), (shape2, dtype2, constant2, memory2) = one, other
        if len(shape) != len(shape2):
            yield f"{path} has {len(shape2)} dimensions after {len(shape)}"
        else:
            for axis, (a, b) in enumerate(zip(shape, shape2, strict=True)):
                if a != b and None not in (a, b):
                    yield f"dimension {axis} of {path} is {b} after {a}"
        if dtype != dtype2:
            yield f"{path} is {dtype2} after {dtype}"
        if constant != constant2:
            yield f"{path} {'does not require' if constant2 else 'requires'} a gradient"
        if memory[2] != memory2[2]:
            yield f"{path} has another memory order"
    elif isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        if len(one) == 2 and isinstance(one[0], type) and one[0] is other[0]:
            if isinstance(one[1], tuple):
                yield from _differences(one[1], other[1], path)
            elif one[1] != other[1] and not by_value(one[0]):
                yield f"{path} is another object ({one[0].__name__}), and objects are not compared by what they hold"
            elif one[1] != other[1]:
                shown = [float.fromhex(v[1]) if v[0] is float else v[1] for v in (one, other)]
                yield f"{path} is {shown[1]!r} after {shown[0]!r}"
            return
        if one and one[0] is MethodType and other[0] is MethodType:
            if one != other:
                yield f"{path} is another method, or that of another object"
            return
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from _differences(a, b, f"{path}[{i}]" if path else f"argument {i}")
    elif one != other:
        yield f"{path or 'the arguments'} changed"


SWITCHES = ("", "", "the gradient mode", "inference mode", "autocast", "autocast", "which arguments are one tensor",
            "the default element type", "torch_compatible")  # fmt: skip


def changed_part(one: Any, other: Any) -> str:
    """The first difference between two signatures, in words."""
    for part in _differences(one[0], other[0], ""):
        return part
    for (name, a), (name2, b) in zip(one[1] or (), other[1] or (), strict=False):
        for part in _differences(a, b, name if name == name2 else "the keywords"):
            return part
    for name, a, b in zip(SWITCHES[2:], one[2:], other[2:], strict=True):
        if a != b:
            return f"{name} changed"
    return "the arguments changed"
