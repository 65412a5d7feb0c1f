"""A function of one example as a function of many. `torch.func.vmap`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ox import random
from ox.autograd.pytree import flatten, prefixed
from ox.core.symbolic import Dim
from ox.core.tensor import is_tensor
from ox.errors import ArgumentError, ShapeError
from ox.func.batching import run_batched
from ox.func.batching_rules import NotBatchable
from ox.functions import stack

FEW = 3  # so many examples are run one by one


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Map `func` over a dimension of its arguments, and stack the results. `torch.func.vmap`.

    The function is recorded for one example, and its operators run once for all examples; where it has an operator
    without a rule for that, or looks at values, it runs once for each.

    Args:
        func: takes and returns tensors or structures of tensors.
        in_dims: for each argument (or each tensor of it) which dimension is mapped over, None for what all share.
            Keyword arguments are the same for all examples.
        out_dims: where the new dimension goes in each result.
        randomness: "error" refuses random numbers, "same" draws the same for each example, "different" others.
        chunk_size: accepted for PyTorch's scripts.

    Raises:
        ArgumentError: nothing is mapped over, or a result is no tensor.
        ShapeError: mapped dimensions of different sizes, or of size 0.
        BoundsError: no such dimension.
    """
    if randomness not in ("error", "same", "different"):
        raise ArgumentError(
            "vmap's randomness is not one of three", expected="error, same, different", got=repr(randomness)
        )

    @wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        leaves, rebuild = flatten((args, kwargs))
        dims = prefixed(in_dims if isinstance(in_dims, int) or in_dims is None else tuple(in_dims), args, "in_dims")
        dims = _checked(leaves, [*dims, *[None] * (len(leaves) - len(dims))])
        count = next(x.shape[d] for x, d in zip(leaves, dims, strict=True) if d is not None)

        def one(examples: list[Any]) -> Any:
            given, keywords = rebuild(examples)
            return func(*given, **keywords)

        if count > FEW or isinstance(count, Dim):
            state = _state()
            try:
                results, form, moved = run_batched(one, leaves, dims)
                if moved and randomness == "error":
                    raise _random_error()
                if not moved or randomness == "same":
                    return form(_move_batch_dims(results, form, out_dims, count))
            except NotBatchable:
                pass
            _restore(state)
        return _each(one, leaves, dims, int(count), out_dims, randomness)

    return wrapper


def _checked(leaves: list[Any], dims: list[Any]) -> list[int | None]:
    """The mapped dimension of each leaf, counted from the front."""
    found: list[int | None] = []
    for x, d in zip(leaves, dims, strict=True):
        if d is None:
            found.append(None)
            continue
        if not is_tensor(x) or not isinstance(d, int):
            raise ArgumentError(
                "vmap can map over tensors only",
                got=f"{type(x).__name__} with in_dims {d}",
                hint="in_dims=None for what is the same for all examples",
            )
        if not -x.array.ndim <= d < x.array.ndim:
            raise ShapeError(f"vmap cannot map over dimension {d} of this tensor", got=str(list(x.static_shape)))
        found.append(d % x.array.ndim)
    sizes = {x.static_shape[d] for x, d in zip(leaves, found, strict=True) if d is not None}
    if not sizes:
        raise ArgumentError("vmap has nothing to map over", hint="an entry of in_dims that is a number")
    if len(sizes) > 1 or 0 in sizes:
        raise ShapeError("vmap maps over one number of examples, above 0", got=str(sorted(sizes)))
    return found


def _each(one: Any, leaves: list[Any], dims: list[Any], count: int, out_dims: Any, randomness: str) -> Any:
    """One call an example."""
    state = _state()
    columns: list[list[Any]] = []
    form: Any = None
    for i in range(count):
        if i and randomness == "same":
            _restore(state)
        examples = [x if d is None else x[(*[slice(None)] * d, i)] for x, d in zip(leaves, dims, strict=True)]
        results, form = flatten(one(examples))
        if randomness == "error" and random.default_generator._changed_since(state):
            raise _random_error()
        columns.append([check_result(y) for y in results])
    several = list(zip(*columns, strict=True))
    places = _out_dims(form, len(several), out_dims)
    return form([c[0] if d is None else stack(list(c), d) for c, d in zip(several, places, strict=True)])


def check_result(y: Any) -> Any:
    """A result, if it is a tensor. Raises ArgumentError else."""
    if not is_tensor(y):
        raise ArgumentError("vmap needs a function that returns tensors", got=type(y).__name__)
    return y


def _out_dims(form: Any, count: int, out_dims: Any) -> list[Any]:
    given: Any = out_dims if isinstance(out_dims, int) or out_dims is None else tuple(out_dims)
    tree = form([None] * count)
    if isinstance(tree, list) and isinstance(given, tuple):
        given = list(given)
    return prefixed(given, tree, "out_dims")


def _move_batch_dims(results: list[tuple[Any, bool]], form: Any, out_dims: Any, count: Any) -> list[Any]:
    """Results with their dimension of examples first (or without one) as `out_dims` wants them."""
    found = []
    for (y, batched), d in zip(results, _out_dims(form, len(results), out_dims), strict=True):
        if d is None:
            if batched:
                raise ArgumentError("a result differs from example to example, but its out_dims is None")
            found.append(y)
        else:
            if not batched:
                y = y.unsqueeze(0).expand(count, *y.shape)
            rank = y.array.ndim
            place = d + rank if d < 0 else d
            order = [*range(1, place + 1), 0, *range(place + 1, rank)]
            found.append(y if place == 0 else y.permute(order))
    return found


def _state() -> tuple[Any, ...]:
    return random.default_generator._snapshot()


def _restore(state: tuple[Any, ...]) -> None:
    random.default_generator._restore(state)


def _random_error() -> ArgumentError:
    return ArgumentError(
        "a function under vmap draws random numbers",
        hint='randomness="same" for equal numbers in each example, "different" for others',
    )
