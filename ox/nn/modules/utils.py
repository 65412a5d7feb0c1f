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


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Take a prefix off the names in a state dict, in place and in the same order, and off those in its metadata: the
    ``module.`` of DistributedDataParallel. `torch.nn.modules.utils.consume_prefix_in_state_dict_if_present`."""
    names = {name: name.removeprefix(prefix) for name in state_dict}
    metadata: dict[str, Any] = getattr(state_dict, "_metadata", {})
    paths = {path: "" if path == prefix.rstrip(".") else path.removeprefix(prefix) for path in metadata}
    for entries, renamed in ((state_dict, names), (metadata, paths)):
        values = {renamed[name]: value for name, value in entries.items()}
        entries.clear()
        entries.update(values)
