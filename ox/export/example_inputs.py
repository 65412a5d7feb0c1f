"""The example that a model is exported with: names, which sizes may vary, and rows cut from it at any size."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ox.core.declared_size import DeclaredSize
from ox.core.operator import make_tensor
from ox.core.size_expression import Expression
from ox.dtypes import ALL
from ox.errors import ArgumentError
from ox.export.declared_dims import Sizes, check_declared, declared_in, size_of, solve
from ox.export.dynamic_shapes import BATCH, from_axes, from_examples, from_shapes
from ox.export.example_values import Values, changed
from ox.functions.creation import tensor
from ox.graph.contract import Contract
from ox.graph.ir import Array
from ox.graph.record.structure import filled, leaves, parts_of_example
from ox.graph.size_rules import SizeRange, SizeRules
from ox.tensors.tensor import Tensor

Dims = Mapping[str, Sequence[int | str]]


@dataclass(frozen=True)
class Example:
    """Arrays by input name, the sizes each declares, and how the model wants them."""

    arrays: dict[str, Array]
    dims: dict[str, tuple[int | str, ...]]
    keywords: tuple[str, ...] | None  # the model's own argument names; None: by position
    known: SizeRules = field(default_factory=SizeRules)  # what a loaded file says of its sizes
    others: tuple[Mapping[str, Array], ...] = ()  # further examples, of other sizes
    arguments: tuple[Any, ...] | None = (
        None  # what the model is called with, where that holds lists, dicts and the like
    )

    @property
    def sizes(self) -> Sizes:
        """The example's own value of every size that may vary by itself."""
        return self.sizes_in(self.arrays)

    def sizes_in(self, arrays: Mapping[str, Array]) -> Sizes:
        """The value of every size that may vary by itself, in arrays for these inputs."""
        found: Sizes = {}
        derived: list[tuple[DeclaredSize, int]] = []
        for name, dims in self.dims.items():
            for dim, size in zip(dims, arrays[name].shape, strict=True):
                if isinstance(dim, DeclaredSize) and dim.derived:
                    derived.append((dim, size))
                elif isinstance(dim, str):
                    found[str(dim)] = size
        while True:  # each that follows from one unknown size tells it
            unknown = [[base for base in dim.bases if base not in found] for dim, _ in derived]
            told = {
                str(left[0]): own
                for left, (dim, size) in zip(unknown, derived, strict=True)
                if len(left) == 1 and (own := solve(dim, size, str(left[0]), found)) is not None
            }
            if not told:
                return found
            found |= told

    @property
    def declared(self) -> dict[str, SizeRange]:
        """The limits of sizes that `ox.Dim` declares."""
        declared = (dim for dims in self.dims.values() for dim in dims if isinstance(dim, DeclaredSize))
        ranges = {
            str(dim): SizeRange(-(-dim.min // dim.multiple_of) * dim.multiple_of, dim.max, dim.multiple_of)
            for each in declared
            for dim in each.bases
        }
        return {**self.known.ranges, **{name: each for name, each in ranges.items() if not each.open}}

    @property
    def conditions(self) -> tuple[Expression, ...]:
        """What holds between the sizes of inputs: ``n + 1``, the name of one, is what it says."""
        dims = {dim for each in self.dims.values() for dim in each if isinstance(dim, DeclaredSize)}
        derived = (("==", str(dim), dim.expression) for dim in sorted(dims) if dim.derived)
        return tuple(dict.fromkeys((*self.known.conditions, *derived)))

    @property
    def batch(self) -> str | None:
        """The name of the first dimension of every input; None where it is fixed or there are several."""
        first = {dims[0] if dims else None for dims in self.dims.values()}
        name = first.pop() if len(first) == 1 else None
        return name if isinstance(name, str) else None

    def cut(self, sizes: Sizes, start: int = 0, *, values: Values = Values.OWN) -> dict[str, Array]:
        """Rows from `start` on, and other open dimensions from their beginning; too short arrays are repeated.

        Integers that no size of the example is below may be places in it, or lengths: as the size shrinks, so do they.
        """
        return {name: self._cut(name, array, sizes, start, values) for name, array in self._nearest(sizes).items()}

    def _nearest(self, sizes: Sizes) -> Mapping[str, Array]:
        """The arrays of the example whose sizes these are, but for the batch; else of the first."""
        for arrays in self.others:
            own = self.sizes_in(arrays)
            if all(own[dim] == size for dim, size in sizes.items() if dim != self.batch):
                return arrays
        return self.arrays

    def _cut(self, name: str, whole: Array, sizes: Sizes, start: int, values: Values) -> Array:
        array = whole
        for axis, dim in enumerate(self.dims[name]):
            if isinstance(dim, str):
                places = (np.arange(size_of(dim, sizes)) + (start if axis == 0 else 0)) % array.shape[axis]
                array = np.take(array, places, axis)
        array = np.ascontiguousarray(array).reshape(array.shape)
        counts = whole.dtype.kind in "iu" and whole.size > 0
        low = 0 if not counts else whole.min() if whole.ndim else whole.dtype.type(min(int(whole), 1))
        array = changed(array, values, low)
        # of no dimensions, NumPy's results are numbers
        limited = counts and values is not Values.OPPOSITE
        return np.asarray(np.minimum(array, self.limit(whole, sizes)) if limited else array)

    def limit(self, whole: Array, sizes: Sizes) -> Any:
        """The largest value of an integer input at these sizes: as far below a size as it is in the example."""
        low, high = int(whole.min()), int(whole.max())
        limit = high
        for dim, own in self.sizes.items():
            bounded = low >= 0 and own - high in ((0, 1) if dim == self.batch else range(own + 1))
            if bounded:
                limit = min(limit, high - max(0, own - sizes[dim]))
        return whole.dtype.type(max(limit, min(low, 1)))  # a length is not 0 unless the example has one

    def with_number(self, name: str) -> Example:
        """With one input more, the last, which is a single int64."""
        if name in self.arrays:
            raise ArgumentError(f"an input is called '{name}' already", expected="another name", got=name)
        arrays, dims = {**self.arrays, name: np.array(7, np.int64)}, {**self.dims, name: ()}
        keywords = None if self.keywords is None else (*self.keywords, name)
        arguments = None if self.arguments is None else (*self.arguments, arrays[name])
        others = tuple({**each, name: arrays[name]} for each in self.others)
        return replace(self, arrays=arrays, dims=dims, keywords=keywords, arguments=arguments, others=others)

    def call(self, model: Callable[..., Any], tensors: Sequence[Tensor]) -> Any:
        """`model` on tensors in the order of the inputs."""
        given: Sequence[Any] = tensors
        if self.arguments is not None:
            given = filled(self.arguments, iter(tensors), parts_of_example)
        if self.keywords is None:
            return model(*given)
        return model(**dict(zip(self.keywords, given, strict=True)))

    def tensors(self, arrays: Mapping[str, Array]) -> dict[str, Tensor]:
        """Arrays as tensors of their own memory."""
        return {name: make_tensor(array.copy()) for name, array in arrays.items()}


def read(
    model: Any,
    example: Any,
    names: Sequence[str] | None,
    dims: Dims | None,
    contract: Contract | None = None,
    *,
    dynamic_axes: Any = None,
    dynamic_shapes: Any = None,
    others: Sequence[Any] = (),
) -> Example:
    """Make an Example of what the caller gave: a tensor, a tuple of them, or a dict by argument name. Lists, tuples,
    dicts and dataclasses of tensors count as one of them. Arguments as of `ox.export.save`.

    Raises:
        ArgumentError: names or dims that do not fit, an empty example, a size that has two values.
    """
    keywords: tuple[str, ...] | None = None
    if isinstance(example, Mapping):
        keywords = tuple(map(str, example))
        given = list(example.values())
    else:
        given = list(example) if isinstance(example, (tuple, list)) else [example]
    _check_arguments(model, len(given), keywords)
    arguments = tuple(given) if any(parts_of_example(x) is not None for x in given) else None
    called = keywords or argument_names(model, len(given))
    inner = [pair for name, x in zip(called, given, strict=True) for pair in leaves(x, name, parts_of_example)]
    arrays = [_array(x) for _, x in (inner if arguments is not None else zip(called, given, strict=True))]
    if names is None:
        known = [info.name for info in contract.inputs] if contract else []
        usual = called if arguments is None else [name for name, _ in inner]
        names = known if len(known) == len(arrays) else usual
    if len(names) != len(arrays) or len(set(names)) != len(names):
        raise ArgumentError(
            "input_names do not fit the example", expected=f"{len(arrays)} different names", got=str(list(names))
        )
    named = dict(zip(names, arrays, strict=True))
    further = tuple(_alike(each, named, keywords, arguments is not None) for each in others)
    told = [dims, dynamic_axes, dynamic_shapes]
    if sum(each is not None for each in told) > 1:
        raise ArgumentError("the sizes that vary are told twice", hint="dims, dynamic_axes or dynamic_shapes")
    if dynamic_axes is not None:
        dims = from_axes(named, dynamic_axes)
    elif dynamic_shapes is not None:
        dims = from_shapes(named, dynamic_shapes, argument_names(model, len(arrays)))
    elif dims is None and further:
        dims = from_examples([named, *further])
    kept = dims is None and contract is not None and [info.name for info in contract.inputs] == list(names)
    if kept and contract is not None:
        dims = {
            info.name: [
                d if isinstance(d, int) else f"{info.name}_{i}" if d is None else declared_in(contract.rules, d)
                for i, d in enumerate(info.dims)
            ]
            for info in contract.inputs
            if info.ranked or not named[info.name].ndim  # else a batch, as without a contract
        }
    unknown = [name for name in dims or {} if name not in named]
    if unknown:
        raise ArgumentError(f"dims name '{unknown[0]}', which is no input", expected=", ".join(named))
    every = {name: _dims(name, x, dims) for name, x in named.items()}
    for arrays_of_other in further:
        _checked(Example(dict(arrays_of_other), {n: _dims(n, x, every) for n, x in arrays_of_other.items()}, keywords))
    rules = SizeRules()
    if contract is not None:
        rules = contract.rules if kept else _renamed(contract, list(every.values()))
    return _checked(Example(named, every, keywords, rules, further, arguments))


def _renamed(contract: Contract, dims: Sequence[Sequence[int | str]]) -> SizeRules:
    """The ranges of the sizes of a loaded file, under the names that they get. What else the file says of its sizes,
    and of those that are called like others now, the recording of the call tells."""
    ranges: dict[str, SizeRange] = {}
    for info, own in zip(contract.inputs, dims, strict=False):
        for old, new in zip(info.dims, own, strict=False):
            if isinstance(old, str) and isinstance(new, str) and old in contract.rules.ranges:
                ranges[str(new)] = contract.rules.ranges[old]
    return SizeRules(ranges)


def _alike(
    example: Any, first: Mapping[str, Array], keywords: tuple[str, ...] | None, nested: bool
) -> dict[str, Array]:
    """A further example, in the form of the first."""
    values = [example[key] for key in keywords] if keywords is not None and isinstance(example, Mapping) else example
    values = values if isinstance(values, (tuple, list)) else [values]
    arrays = [_array(x) for x in ([x for _, x in leaves(values, "", parts_of_example)] if nested else values)]
    kinds = [(x.dtype, x.ndim) for x in arrays]
    if kinds != [(x.dtype, x.ndim) for x in first.values()]:
        raise ArgumentError(
            "the examples are not alike",
            expected=", ".join(f"{name} {x.dtype} of {x.ndim} dimensions" for name, x in first.items()),
            got=", ".join(f"{dtype} of {rank} dimensions" for dtype, rank in kinds),
        )
    return dict(zip(first, arrays, strict=True))


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
    try:
        array = np.asarray(x)
    except ValueError as error:  # rows of different lengths
        raise ArgumentError("an example is no array", got=str(error), hint="rows of one length") from error
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
    limits: dict[str, tuple[int, int | None, int]] = {}
    sizes, declared = example.sizes, example.declared
    for name, dims in example.dims.items():
        for dim, size in zip(dims, example.arrays[name].shape, strict=True):
            if not isinstance(dim, str):
                continue
            if isinstance(dim, DeclaredSize):
                check_declared(dim, size, name, sizes, declared)
                for base in dim.bases:
                    own = base.min, base.max, base.multiple_of
                    first_own = limits.setdefault(str(base), own)
                    if first_own != own:
                        raise ArgumentError(
                            f"the size '{base}' is declared twice, with other limits",
                            expected="one ox.Dim for all inputs that have it",
                            got=" and ".join(f"min={a}, max={b}, multiple_of={c}" for a, b, c in (first_own, own)),
                        )
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
    """Two values for every size that varies, no pair like another: 2 and 3 rows, other sizes as they are, then less,
    or more where less was not declared."""
    first, second = Sizes(), Sizes()
    other = example.sizes_in(example.others[0]) if example.others else {}
    for dim, own in example.sizes.items():
        allowed = example.declared.get(dim, SizeRange())
        if dim != example.batch and other.get(dim, own) != own:
            first[dim], second[dim] = own, other[dim]
            continue
        for a, b in _pairs(own, dim == example.batch):
            one, two = allowed.nearest(a) or own, allowed.nearest(b) or own
            if one != two and (one, two) not in zip(first.values(), second.values(), strict=True):
                break
        else:
            one = two = own  # no other size is allowed
        first[dim], second[dim] = one, two
    return first, second


def within(sizes: Sizes, ranges: Mapping[str, SizeRange], others: Sequence[Sizes] = ()) -> Sizes:
    """The nearest sizes that the ranges allow, other ones than `others` has where that is possible."""
    return {dim: _within(dim, size, ranges[dim], others) if dim in ranges else size for dim, size in sizes.items()}


def _within(dim: str, size: int, allowed: SizeRange, others: Sequence[Sizes]) -> int:
    used = {each[dim] for each in others}
    step = allowed.multiple_of
    near = allowed.nearest(size)
    if near is None:
        return size
    tried = [near + k * step for k in (0, 1, -1, 2, -2)]  # larger first: at 1 code takes shortcuts
    return next((n for n in tried if n in allowed and n not in used), near)


def _pairs(own: int, rows: bool) -> Iterator[tuple[int, int]]:
    a, b = (2, 3) if rows else (own, own - 1) if own >= 3 else (4, 5)
    yield a, b
    for more in range(1, 2049):  # far, where the steps are large
        if b > more:
            yield a, b - more
        yield a, a + more
