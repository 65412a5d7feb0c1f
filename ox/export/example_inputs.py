"""The example that a model is exported with: names, which sizes may vary, and rows cut from it at any size."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ox.core.operator import make_tensor
from ox.dtypes import ALL
from ox.errors import ArgumentError
from ox.functions.creation import tensor
from ox.graph.contract import Contract
from ox.graph.ir import Array
from ox.tensors.tensor import Tensor

Dims = Mapping[str, Sequence[int | str]]
Sizes = dict[str, int]
BATCH = "batch"


@dataclass(frozen=True)
class Example:
    """Arrays by input name, the sizes each declares, and how the model wants them."""

    arrays: dict[str, Array]
    dims: dict[str, tuple[int | str, ...]]
    keywords: tuple[str, ...] | None  # the model's own argument names; None: by position

    @property
    def sizes(self) -> Sizes:
        """The example's own value of every size that may vary."""
        return {
            dim: self.arrays[name].shape[axis]
            for name, dims in self.dims.items()
            for axis, dim in enumerate(dims)
            if isinstance(dim, str)
        }

    @property
    def batch(self) -> str | None:
        """The name of the first dimension of every input; None where it is fixed or there are several."""
        first = {dims[0] if dims else None for dims in self.dims.values()}
        name = first.pop() if len(first) == 1 else None
        return name if isinstance(name, str) else None

    def cut(self, sizes: Sizes, start: int = 0) -> dict[str, Array]:
        """Rows from `start` on, and other open dimensions from their beginning; too short arrays are repeated."""
        return {name: self._cut(array, self.dims[name], sizes, start) for name, array in self.arrays.items()}

    def _cut(self, array: Array, dims: tuple[int | str, ...], sizes: Sizes, start: int) -> Array:
        for axis, dim in enumerate(dims):
            if isinstance(dim, str):
                places = (np.arange(sizes[dim]) + (start if axis == 0 else 0)) % array.shape[axis]
                array = np.take(array, places, axis)
        return np.ascontiguousarray(array).reshape(array.shape)

    def call(self, model: Callable[..., Any], tensors: Sequence[Tensor]) -> Any:
        """`model` on tensors in the order of the inputs."""
        if self.keywords is None:
            return model(*tensors)
        return model(**dict(zip(self.keywords, tensors, strict=True)))

    def tensors(self, arrays: Mapping[str, Array]) -> dict[str, Tensor]:
        """Arrays as tensors of their own memory."""
        return {name: make_tensor(array.copy()) for name, array in arrays.items()}


def read(
    model: Any, example: Any, names: Sequence[str] | None, dims: Dims | None, contract: Contract | None = None
) -> Example:
    """Make an Example of what the caller gave: a tensor, a tuple of them, or a dict by argument name.

    Raises:
        ArgumentError: names or dims that do not fit, an empty example, a size that has two values.
    """
    keywords: tuple[str, ...] | None = None
    if isinstance(example, Mapping):
        keywords = tuple(map(str, example))
        given = list(example.values())
    else:
        given = list(example) if isinstance(example, (tuple, list)) else [example]
    arrays = [_array(x) for x in given]
    _check_arguments(model, len(arrays), keywords)
    if names is None:
        known = [info.name for info in contract.inputs] if contract else []
        names = known if len(known) == len(arrays) else keywords or argument_names(model, len(arrays))
    if len(names) != len(arrays) or len(set(names)) != len(names):
        raise ArgumentError(
            "input_names do not fit the example", expected=f"{len(arrays)} different names", got=str(list(names))
        )
    named = dict(zip(names, arrays, strict=True))
    if dims is None and contract and [info.name for info in contract.inputs] == list(names):
        dims = {
            info.name: [d if d is not None else f"{info.name}_{i}" for i, d in enumerate(info.dims)]
            for info in contract.inputs
        }
    unknown = [name for name in dims or {} if name not in named]
    if unknown:
        raise ArgumentError(f"dims name '{unknown[0]}', which is no input", expected=", ".join(named))
    return _checked(Example(named, {name: _dims(name, x, dims) for name, x in named.items()}, keywords))


def _check_arguments(model: Any, count: int, keywords: tuple[str, ...] | None) -> None:
    """Whether the model can be called with so many tensors, or with those names."""
    try:
        signature = inspect.signature(getattr(model, "forward", model))
    except (TypeError, ValueError):  # a callable without a signature
        return
    try:
        signature.bind(*[None] * (count if keywords is None else 0), **dict.fromkeys(keywords or ()))
    except TypeError as error:
        raise ArgumentError(
            "the example does not fit the arguments of the model",
            expected=str(signature),
            got=f"{count} by position: {error}" if keywords is None else f"{', '.join(keywords)}: {error}",
            hint="a tensor, a tuple of them in the order of the arguments, or a dict by argument name",
        ) from None


def _array(x: Any) -> Array:
    if isinstance(x, Tensor):
        array: Array = x.detach().cpu().array
        return array
    array = np.asarray(x)
    if array.dtype not in ALL:
        got = f"{type(x).__name__} of {array.dtype}"
        raise ArgumentError("an example is a tensor or array of numbers, or a tuple or dict of them", got=got)
    # Python's own numbers become what ox.tensor makes of them
    return array if hasattr(x, "dtype") else tensor(x).array


def argument_names(model: Any, count: int) -> list[str]:
    """The names of the first `count` positional arguments of a module's forward or of a function."""
    function = getattr(model, "forward", model)
    plain = ["input"] if count == 1 else [f"input_{i}" for i in range(count)]
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return plain
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = [p.name for p in parameters if p.kind in kinds]
    return found[:count] if len(found) >= count else plain


def _dims(name: str, array: Array, given: Dims | None) -> tuple[int | str, ...]:
    shape = array.shape
    if given is None or name not in given:
        if not shape:
            raise ArgumentError(
                f"the example of '{name}' has no dimensions",
                expected="a batch of samples",
                hint=f"dims={{'{name}': []}} for an input that is one number",
            )
        return (BATCH, *shape[1:])
    dims = tuple(given[name])
    fits = len(dims) == len(shape) and all(isinstance(d, str) or d == n for d, n in zip(dims, shape, strict=True))
    if not fits:
        raise ArgumentError(
            f"dims of '{name}' do not fit the example", expected=f"as {list(shape)}", got=str(list(dims))
        )
    return dims


def _checked(example: Example) -> Example:
    seen: dict[str, tuple[int, str]] = {}
    for name, dims in example.dims.items():
        for dim, size in zip(dims, example.arrays[name].shape, strict=True):
            if not isinstance(dim, str):
                continue
            if size == 0:
                raise ArgumentError(
                    f"the size '{dim}' of the example '{name}' is 0", got=str(list(example.arrays[name].shape))
                )
            first = seen.setdefault(dim, (size, name))
            if first[0] != size:
                raise ArgumentError(
                    f"the size '{dim}' has two values in the example",
                    got=f"{first[0]} in '{first[1]}', {size} in '{name}'",
                    hint=f"a name for each size that varies: dims={{'{name}': ['time', 'batch', 8]}}",
                )
    return example


def recording_sizes(example: Example) -> tuple[Sizes, Sizes]:
    """Two values for every size that varies, no pair like another: 2 and 3 rows, other sizes as they are, then less."""
    first, second = Sizes(), Sizes()
    for dim, own in example.sizes.items():
        a, b = (2, 3) if dim == example.batch else (own, own - 1) if own >= 3 else (4, 5)
        while (a, b) in zip(first.values(), second.values(), strict=True):
            a, b = a + 2, b + 2
        first[dim], second[dim] = a, b
    return first, second
