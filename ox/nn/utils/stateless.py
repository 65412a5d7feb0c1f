"""A module called with other parameters than its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ox.errors import ArgumentError
from ox.nn.module import Module
from ox.ops.explain import place
from ox.tensor import Tensor


def functional_call(
    module: Module,
    parameters_and_buffers: Mapping[str, Tensor] | tuple[Mapping[str, Tensor], ...],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """``module(*args, **kwargs)`` with tensors in place of parameters and buffers, by dotted name; the module itself
    keeps its own. `torch.func.functional_call`.

    Args:
        parameters_and_buffers: a dict, or several that share no name; what is not named stays the module's own.
        args: the arguments; what is not a tuple is the only one.
        tie_weights: one tensor for a shared parameter stands in all its places.
        strict: every parameter and buffer is named.

    Raises:
        ArgumentError: a name that the module has not, or twice, or with `strict` one that is missing.
    """
    given = _merged(parameters_and_buffers)
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with swapped(module, given, tie_weights, strict):
        return module(*args, **(kwargs or {}))


def _merged(given: Any) -> dict[str, Tensor]:
    parts = [given] if isinstance(given, Mapping) else list(given)
    merged: dict[str, Tensor] = {}
    for part in parts:
        twice = sorted(merged.keys() & part.keys())
        if twice:
            raise ArgumentError(f"{', '.join(twice)} given twice", where=place(), hint="each name in one dict")
        merged.update(part)
    return merged


@contextmanager
def swapped(module: Module, given: Mapping[str, Any], tie_weights: bool = True, strict: bool = False) -> Iterator[None]:
    """Other tensors stand in the module's places while the block runs."""
    places: dict[str, tuple[dict[str, Any], str]] = {}
    alike: dict[int, list[str]] = {}
    for path, each in module.named_modules(remove_duplicate=False):
        for kind in (each._parameters, each._buffers):
            for name, held in kind.items():
                if held is not None:
                    full = f"{path}.{name}" if path else name
                    places[full] = (kind, name)
                    alike.setdefault(id(held), []).append(full)
    unknown = sorted(given.keys() - places.keys())
    missing = sorted(places.keys() - given.keys()) if strict else []
    if unknown or missing:
        raise ArgumentError(
            f"these are not the parameters and buffers of {type(module).__name__}",
            where=place(),
            got="; ".join([*(f"no place for {n}" for n in unknown), *(f"{n} is missing" for n in missing)][:12]),
        )
    wanted = dict(given)
    if tie_weights:
        for names in alike.values():
            values = {id(given[n]): given[n] for n in names if n in given}
            if len(values) > 1:
                raise ArgumentError(
                    f"{', '.join(names)} are one parameter, and got different tensors",
                    where=place(),
                    hint="one of them, or tie_weights=False",
                )
            for value in values.values():
                wanted.update(dict.fromkeys(names, value))
    before = [(kind, name, kind[name]) for kind, name in (places[full] for full in wanted)]
    try:
        for full, value in wanted.items():
            kind, name = places[full]
            kind[name] = value
        yield
    finally:
        for kind, name, value in before:
            kind[name] = value
