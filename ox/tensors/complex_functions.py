"""Functions that mean the same for pairs as for complex numbers: methods of `ComplexPairs`, and what the functions of
`ox` do with one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ox import functions as F
from ox.functions.dimension_arguments import one_dim
from ox.tensors.complex_pairs import (
    ComplexPairs,
    marked,
    pairs_of,
    positive_dims,
    view_as_complex,
    view_as_real,
    without_mark,
)


def _over_dims(name: str) -> Callable[..., Any]:
    """A function of dimensions, which are counted without that of the pairs."""
    function = getattr(F, name)
    signature = inspect.signature(function)

    def method(self: ComplexPairs, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(self, *args, **kwargs)
        given.apply_defaults()
        rank = self.ndim + (name == "unsqueeze")
        for parameter in _DIMS & given.arguments.keys():
            given.arguments[parameter] = positive_dims(self, name, given.arguments[parameter], rank)
        given.arguments[next(iter(given.arguments))] = without_mark(self)
        result = function(*given.args, **given.kwargs)
        return tuple(map(marked, result)) if isinstance(result, (tuple, list)) else marked(result)

    method.__doc__ = function.__doc__
    return method


_DIMS = {"dim", "dims", "dim0", "dim1", "axis0", "axis1", "source", "destination", "start_dim", "end_dim"}
_NAMED = (
    "unsqueeze", "squeeze", "transpose", "swapaxes", "swapdims", "movedim", "moveaxis", "narrow", "select", "unbind",
    "index_select", "split", "chunk", "tensor_split", "sum", "mean", "cumsum", "flip", "flatten", "unflatten", "diff",
)  # fmt: skip
for _name in _NAMED:
    setattr(ComplexPairs, _name, _over_dims(_name))


def _join_function(name: str) -> Callable[..., Any]:
    function = getattr(F, name)

    def join(tensors: Any, dim: int = 0, *rest: Any, **more: Any) -> Any:
        all_pairs = [without_mark(pairs_of(x, name)) for x in tensors]
        return marked(function(all_pairs, one_dim(dim, tensors[0].ndim + (name == "stack"))))

    return join


def _on_pairs(name: str) -> Callable[..., Any]:
    return lambda x, *args, **more: getattr(x, name)(*args, **more)


# what functions of ox do with pairs, by name; others refuse them
ComplexPairs.of_functions = {  # type: ignore[attr-defined]
    **{name: _on_pairs(name) for name in (*_NAMED, "roll", "expand", "tile", "repeat", "broadcast_to")},
    **{name: _join_function(name) for name in ("cat", "concat", "concatenate", "stack")},
}

__all__ = ["view_as_complex", "view_as_real"]
