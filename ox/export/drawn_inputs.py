"""Inputs for a file that nobody gave an example for: its golden samples, or random ones of sizes that it takes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np

from ox.core.size_expression import evaluate, leaves
from ox.errors import ExportError, first_line
from ox.graph.contract import DTYPES, Array, Contract, TensorInfo
from ox.graph.size_rules import SizeRange, SizeRules, is_name_of

Feed = dict[str, Array]
SIZES = (8, 16, 32, 64, 224, 4, 3, 2, 1)  # of a dimension that varies and is no batch, the first that runs
# the range of integers, the first that runs: a length is 1 at least, an index is often below 2
INTEGERS = ((1, 2), (0, 1), (1, 1))
RANKS = (2, 4, 3, 1, 0, 5)  # of inputs without a declared shape, the first that runs
ROWS = (2, 7, 32)  # of a batch, the first that runs; images of 224 only with the first


def draw(
    inputs: Sequence[TensorInfo],
    contract: Contract,
    rows: int | None,
    size: int,
    seed: int = 0,
    integers: tuple[int, int] = (0, 1),
) -> Feed:
    """Inputs with `rows` in the first dimension, where that is a batch, and `size` in others that vary, or the nearest
    that the file allows. Within the range of the golden samples, if there are any; else normal floats, and integers of
    a range that is valid as places nearly everywhere.

    Args:
        integers: the range of an input with one number, or one for each row, which may be a length. Others are 0 and 1,
            or 1 alone if this is.
    """
    random = np.random.default_rng(seed)
    known = {
        i.name: np.concatenate([s.inputs[i.name].ravel() for s in contract.samples]) for i in inputs if contract.samples
    }
    batches = {info.dims[0] for info in inputs if rows is not None and isinstance(info.dims[0], str)}
    return {
        info.name: _drawn(random, info, known.get(info.name), _shape(info, contract, rows, size, batches), integers)
        for info in inputs
    }


def _shape(
    info: TensorInfo, contract: Contract, rows: int | None, size: int, batches: Collection[int | str | None]
) -> list[int]:
    golden = contract.samples[0].inputs[info.name].shape if contract.samples else None
    shape = []
    for axis, dim in enumerate(info.dims):
        batch = rows is not None and (axis == 0 or dim in batches)
        wanted = rows if batch and rows is not None else golden[axis] if golden is not None else size
        allowed = contract.rules.ranges.get(str(dim), SizeRange())
        follows = _following(contract.rules, dim, size) if golden is None else None
        shape.append(dim if isinstance(dim, int) else follows or allowed.nearest(wanted) or wanted)
    return shape


def _following(rules: SizeRules, dim: int | str | None, size: int) -> int | None:
    """What a size that follows from others is where those are `size`, or the nearest that the file allows."""
    for named in rules.conditions:
        if is_name_of(named) and named[1] == dim:
            others = {name: rules.ranges.get(name, SizeRange()).nearest(size) or size for name in leaves(named[2])}
            return int(evaluate(named[2], others))
    return None


def _drawn(
    random: np.random.Generator, info: TensorInfo, known: Array | None, shape: Sequence[int], integers: tuple[int, int]
) -> Array:
    dtype = DTYPES[info.dtype]
    if info.dtype == "BYTES":
        return random.choice(np.array(["a", "b"], object) if known is None else known, shape)
    if info.dtype == "BOOL":
        return random.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        usual = integers if len(shape) < 2 else (int(integers[0] == integers[1]), 1)
        low, high = usual if known is None else (known.min(), known.max())
        return random.integers(low, high, shape, dtype, endpoint=True)
    if known is None:
        return random.standard_normal(shape).astype(dtype)
    values = known.astype(np.float64)
    return random.uniform(float(values.min()), float(values.max()), shape).astype(dtype)


def runnable(
    inputs: Sequence[TensorInfo], contract: Contract, run: Callable[[Feed], Any]
) -> Iterator[tuple[int | None, Feed, Any]]:
    """Inputs of 1, 2 and 7 rows with what `run` gives for them, at the first size that it takes; of one batch where
    the first dimension does not vary. A file that does not run with one row, such as one with a TopK along the batch,
    is run with the fewest that it takes.

    Raises:
        ExportError: it takes none that was tried.
    """
    if not all(info.ranked for info in inputs):
        yield from _of_any_rank(inputs, contract, run)
        return
    first = {info.dims[:1] for info in inputs}
    batched = len(first) == 1 and all(dims and not isinstance(dims[0], int) for dims in first)
    counts: tuple[int | None, ...] = ROWS if batched else (None,)
    failure = None
    for integers, most, size in (
        (integers, n, size)
        for integers in INTEGERS
        for n in counts
        for size in SIZES
        if n in (None, ROWS[0]) or size <= ROWS[-1]
    ):
        try:
            run(draw(inputs, contract, most, size, integers=integers))
            break
        except Exception as error:  # runtimes share no base class of exceptions
            failure = failure or error
    else:
        assert failure is not None
        raise ExportError(
            "no input was found that the file takes",
            expected=", ".join(map(str, inputs)),
            got=first_line(failure),
            hint="inputs (--inputs FILE) that it takes, golden samples in the file, or an export from the model itself",
        ) from failure
    if most is None:
        feed = draw(inputs, contract, None, size, integers=integers)
        yield None, feed, run(feed)
        return
    fewest = _fewest(lambda rows: run(draw(inputs, contract, rows, size, rows, integers)), most)
    done = set()
    for rows in (fewest, *(n for n in (2, 7) if n > fewest)):
        feed = draw(inputs, contract, rows, size, rows, integers)
        count = len(feed[inputs[0].name])  # the nearest that the file allows
        if count not in done:
            done.add(count)
            yield count, feed, run(feed)


def _of_any_rank(
    inputs: Sequence[TensorInfo], contract: Contract, run: Callable[[Feed], Any]
) -> Iterator[tuple[int | None, Feed, Any]]:
    """`runnable` at the first rank that runs, for inputs that a file declares without a shape."""
    failure: ExportError | None = None
    for rank in RANKS:
        try:
            yield from list(runnable([info.with_rank(rank) for info in inputs], contract, run))
            return
        except ExportError as error:
            failure = failure or error
    assert failure is not None
    raise failure


def _fewest(run: Callable[[int], Any], most: int) -> int:
    """The fewest rows that run; `most` do."""
    for rows in range(1, most):
        try:
            run(rows)
            return rows
        except Exception:  # runtimes share no base class of exceptions
            continue
    return most
