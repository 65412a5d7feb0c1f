"""Which sizes may vary, as PyTorch's exporters are told of it: `dynamic_axes` and `dynamic_shapes`; or as several
examples show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ox.core.declared_size import SizeHint
from ox.errors import ArgumentError
from ox.graph.ir import Array

Dims = dict[str, list[int | str]]
Axes = Mapping[str, Mapping[int, str] | Sequence[int]]
BATCH = "batch"


def from_axes(arrays: Mapping[str, Array], axes: Axes) -> Dims:
    """The dims of inputs from ``{"x": {0: "batch", 2: "length"}}`` or ``{"x": [0, 2]}``; every other size is fixed.
    What it says of names that are no input is about outputs, whose sizes follow by themselves.

    Raises:
        ArgumentError: a dimension that an input has not.
    """
    found: Dims = {}
    for name, array in arrays.items():
        given = axes.get(name, ())
        named = given if isinstance(given, Mapping) else dict.fromkeys(given, SizeHint.DYNAMIC)
        found[name] = _named("dynamic_axes", name, array, named)
    return found


def check_axes(axes: Axes | None, ends: Sequence[str]) -> None:
    """Raise ArgumentError where `dynamic_axes` names what is neither input nor output."""
    unknown = [name for name in axes or () if name not in ends]
    if unknown:
        raise ArgumentError(
            f"dynamic_axes names '{unknown[0]}', which is no input and no output", expected=", ".join(ends)
        )


def from_shapes(arrays: Mapping[str, Array], shapes: Any, arguments: Sequence[str]) -> Dims:
    """The dims of inputs from `torch.export`'s ``{"x": {0: Dim("batch")}}``, or ``({0: "batch"}, None)`` in the order
    of the inputs. A size is None or `Dim.STATIC` where it is fixed, `Dim.DYNAMIC` or `Dim.AUTO` where it has no name.

    Args:
        arguments: what the model's own code calls the inputs, which is as good.

    Raises:
        ArgumentError: inputs that there are not, or a dimension that an input has not.
    """
    if isinstance(shapes, Mapping):
        by_argument = dict(zip(arguments, arrays, strict=False))
        given = {by_argument.get(name, name) if name not in arrays else name: entry for name, entry in shapes.items()}
        unknown = [name for name in given if name not in arrays]
    else:
        given = dict(zip(arrays, shapes, strict=False)) if isinstance(shapes, Sequence) else {}
        unknown = [] if isinstance(shapes, Sequence) and len(shapes) == len(arrays) else [type(shapes).__name__]
    if unknown:
        raise ArgumentError(
            "dynamic_shapes does not fit the inputs",
            expected=f"a dict with names of {', '.join(arrays)}, or one entry for each of them in order",
            got=str(shapes),
        )
    found: Dims = {}
    for name, array in arrays.items():
        entry = given.get(name)
        if isinstance(entry, (list, tuple)):
            if len(entry) != array.ndim:
                raise ArgumentError(
                    f"dynamic_shapes of '{name}' has {len(entry)} dimensions", expected=str(list(array.shape))
                )
            entry = dict(enumerate(entry))
        found[name] = _named("dynamic_shapes", name, array, entry or {})
    return found


def _named(argument: str, name: str, array: Array, axes: Mapping[int, Any]) -> list[int | str]:
    """The sizes of an input, with names for those that may vary."""
    dims: list[int | str] = list(array.shape)
    for axis, size in axes.items():
        if type(axis) is not int or not -len(dims) <= axis < len(dims):
            raise ArgumentError(f"{argument} names dimension {axis} of {name}", expected=f"of {len(dims)} dimensions")
        if size is SizeHint.DYNAMIC:
            dims[axis] = f"{name}_{axis % len(dims)}" if axis % len(dims) else BATCH
        elif size is not None and size is not SizeHint.STATIC:
            dims[axis] = size
    return dims


def from_examples(examples: Sequence[Mapping[str, Array]]) -> Dims:
    """The dims of inputs whose sizes differ between examples: equal ones get one name. The first dimension of all
    inputs is ``batch``, as it is without other examples."""
    names: dict[tuple[int, ...], str] = {}
    found: Dims = {}
    for name, array in examples[0].items():
        dims: list[int | str] = []
        for axis in range(array.ndim):
            sizes = tuple(each[name].shape[axis] for each in examples)
            varies = axis == 0 or len(set(sizes)) > 1
            dims.append((BATCH if axis == 0 else names.setdefault(sizes, f"{name}_{axis}")) if varies else sizes[0])
        found[name] = dims
    return found
