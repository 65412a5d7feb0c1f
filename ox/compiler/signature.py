"""What of a call decides which recording serves it: the structure of its arguments, the kinds of its tensors, numbers
and strings by value."""

from __future__ import annotations

import dataclasses
import enum
import operator
from collections import OrderedDict
from collections.abc import Callable
from types import MethodType
from typing import Any

import numpy as np

from ox.core.device import device
from ox.core.memory_format import memory_order
from ox.core.size import Size
from ox.core.tensor import TensorBase
from ox.nn.parameter import Buffer, Parameter
from ox.tensors.tensor import Tensor

PLAIN = frozenset((Tensor, Parameter, Buffer))
BY_VALUE = frozenset((type(None), bool, int, str, bytes, complex, np.dtype, type, slice, range, device, Size))
PLAIN_METHODS = ("__new__", "__init__", "__setitem__", "update")


def by_value(kind: type) -> bool:
    """Whether a signature has what a value of this class is, and not which object."""
    return kind in BY_VALUE or kind is float or issubclass(kind, (enum.Enum, np.generic, np.dtype))


class Unusual(Exception):
    """An argument or result that no recording can take; the text says what it is."""


def describe(value: Any, tensors: list[Tensor], objects: list[Any]) -> Any:
    """The part of the key for a value; its tensors join `tensors`, what counts by identity `objects`.

    Raises:
        Unusual: an array of NumPy, a sparse or complex tensor, an iterator.
    """
    kind = type(value)
    if kind in PLAIN:
        tensors.append(value)
        array = value.array
        # reshape, contiguous and others give a view or a copy by the order in memory
        memory = type(array), value._base is None, memory_order(array)
        return array.shape, array.dtype, value.node is None, memory
    if kind in BY_VALUE:
        return kind, value
    if kind is float:
        return kind, value.hex()
    if kind is tuple or kind is list:
        return kind, tuple([describe(each, tensors, objects) for each in value])
    if kind is dict:
        return kind, tuple(
            [
                (key if type(key) is str else (type(key), key), describe(each, tensors, objects))
                for key, each in value.items()
            ]
        )
    return _unusual(value, kind, tensors, objects)


def _unusual(value: Any, kind: type, tensors: list[Tensor], objects: list[Any]) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind, tuple([describe(each, tensors, objects) for each in value])
    if isinstance(value, TensorBase) or hasattr(kind, "is_sparse"):
        raise Unusual(f"a tensor of the class {kind.__name__}")
    if isinstance(value, np.ndarray):
        raise Unusual("an array of NumPy, whose values are not guarded: ox.as_tensor(array) outside")
    if hasattr(kind, "__next__"):
        raise Unusual("an iterator")
    if by_value(kind):
        return kind, value
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return kind, tuple([describe(getattr(value, name), tensors, objects) for name in names])
    if isinstance(value, (dict, list, set, frozenset)) and kind is not frozenset:
        raise Unusual(f"a {kind.__name__}")
    objects.append(value)
    return (kind, id(value.__self__), id(value.__func__)) if kind is MethodType else (kind, id(value))


def sharing(tensors: list[Tensor]) -> tuple[int, ...] | None:
    """Which arguments are one tensor: for each the number of the first that it is; None when all differ."""
    if len(tensors) < 2 or len(set(map(id, tensors))) == len(tensors):
        return None
    first: dict[int, int] = {}
    return tuple([first.setdefault(id(t), i) for i, t in enumerate(tensors)])


def _is_plain(result: dict[Any, Any]) -> bool:
    """Whether its class made of a dict gives the same again: a `defaultdict` wants something else, a class with an
    ``__init__`` of its own may do anything."""
    own = [getattr(type(result), name) for name in PLAIN_METHODS]
    known = ([getattr(each, name) for each in (dict, OrderedDict)] for name in PLAIN_METHODS)
    return not getattr(result, "__dict__", None) and all(map(operator.contains, known, own))


Rebuild = Callable[[list[Any]], Any]


def take_apart(result: Any, leaves: list[Any], outlives: Callable[[Any], bool]) -> Rebuild:
    """The tensors in a result join `leaves`, each once; the function makes the same structure of as many others.

    Args:
        outlives: whether an object is the same one in every call, and stands for itself.

    Raises:
        Unusual: an object that cannot be made again.
    """
    kind = type(result)
    if isinstance(result, TensorBase) or hasattr(kind, "is_sparse"):
        if kind not in PLAIN:
            raise Unusual(f"a tensor of the class {kind.__name__}")
        place = next((i for i, leaf in enumerate(leaves) if leaf is result), len(leaves))
        if place == len(leaves):
            leaves.append(result)
        return lambda made: made[place]
    if by_value(kind):
        return lambda made: result
    if outlives(result):
        return lambda made: result
    if isinstance(result, (list, tuple)):
        parts = [take_apart(each, leaves, outlives) for each in result]
        if kind is list:
            return lambda made: [part(made) for part in parts]
        if kind is tuple:
            return lambda made: tuple([part(made) for part in parts])
        if hasattr(kind, "_fields"):
            return lambda made: kind(*[part(made) for part in parts])
    if isinstance(result, dict) and _is_plain(result):
        held = {key: take_apart(each, leaves, outlives) for key, each in result.items()}
        if kind is dict:
            return lambda made: {key: part(made) for key, part in held.items()}
        return lambda made: kind({key: part(made) for key, part in held.items()})
    if dataclasses.is_dataclass(result) and operator.is_(kind.__new__, object.__new__):
        names = [field.name for field in dataclasses.fields(result) if hasattr(result, field.name)]
        if getattr(result, "__dict__", {}).keys() <= set(names):
            fields = [(name, take_apart(getattr(result, name), leaves, outlives)) for name in names]
            return lambda made: _filled(object.__new__(kind), [(name, part(made)) for name, part in fields])
    raise Unusual(f"an object of the class {kind.__name__}")


def _filled(new: Any, fields: list[tuple[str, Any]]) -> Any:
    """A dataclass with these fields. Its own `__init__` and `__post_init__` have been at them already."""
    for name, value in fields:
        object.__setattr__(new, name, value)  # it may be frozen
    return new


def setting_signature(group: Any) -> tuple[Any, ...]:
    """What of a parameter group is no tensor: for fractions whether they are zero, everything else by value."""
    return tuple(
        [
            (name, bool(value)) if isinstance(value, float) else (name, value)
            for name, value in dict.items(group)
            if name not in ("params", "param_names", "betas", "lr", "initial_lr", "max_lr", "min_lr")
        ]
    )
