"""`torch.nn.modules.utils`: one number as several, for layers of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def _ntuple(n: int) -> Callable[[Any], tuple[Any, ...]]:
    """The function that gives `n` times its argument, or the argument as a tuple where it is a sequence."""
    return lambda x: tuple(x) if isinstance(x, Iterable) else (x,) * n


_single, _pair, _triple, _quadruple = map(_ntuple, (1, 2, 3, 4))


def _reverse_repeat_tuple(t: tuple[Any, ...], n: int) -> tuple[Any, ...]:
    """Each element `n` times, the last one first: a convolution's padding as `F.pad` takes it."""
    return tuple(x for x in reversed(t) for _ in range(n))
