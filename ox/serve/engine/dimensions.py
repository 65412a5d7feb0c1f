"""What the memory of runs means for the sizes of a model's inputs: which are hopeless, before anything is run.

For each dimension that varies, a few runs of growing size tell how much memory they take and how that grows. Sizes that
would need more than twice the memory there is are refused by the shape alone. Between that and what really fits, the
arena decides (`ox.serve.engine.memory`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2
from time import perf_counter

import numpy as np

from ox.errors import LoadError, ServeError
from ox.graph.contract import TensorInfo
from ox.serve.engine.instance import Feed
from ox.serve.engine.proof import draw
from ox.serve.engine.session import Engine

MIB = 1 << 20
SMALLEST, LARGEST = 16, 1 << 16  # sizes that are tried
ENOUGH = 128 * MIB  # a run that takes so much shows how memory grows
LEAST = 32 * MIB  # one that takes less shows nothing: the arena grows in pieces
BUDGET_S = 0.1  # for each dimension
MOST_DIMS = 4
DOUBT = 2  # what is predicted may be wrong by so much
STEEPEST = 3.0  # exponent of the growth


def check_smallest(name: str, engine: Engine) -> None:
    """Runs a model of fixed sizes, which did not run before, to tell what hinders it.

    Raises:
        LoadError: one row needs more memory than all runs may take, so no request could be answered.
    """
    if any(not isinstance(dim, int) for info in engine.inputs for dim in info.dims[1:]):
        return
    try:
        engine.run(draw(engine.inputs, (), 1, np.random.default_rng(0)))
    except ServeError as error:
        if error.status == 413:
            what = f"{name} needs more memory than its runs may take, even for one row"
            raise LoadError(what, expected=error.expected, got=error.got, hint="--limit memory=...") from error


def varying(inputs: Sequence[TensorInfo]) -> list[str]:
    """The names of the dimensions that vary and do not count rows; "None" for those without a name."""
    rows = inputs[0].dims[:1] if inputs else ()
    found: dict[str, None] = {}
    for info in inputs:
        for axis, dim in enumerate(info.dims):
            if not isinstance(dim, int) and not (axis == 0 and info.dims[:1] == rows) and (dim,) != rows:
                found[str(dim)] = None
    return list(found)


def hopeless(engine: Engine, row: Feed | None, told: Mapping[str, int]) -> dict[str, int]:
    """The most that each dimension may be, as far as a few runs can tell.

    Args:
        engine: on the CPU; a GPU's memory is not measured.
        row: a valid input, from which others are made.
        told: dimensions that are limited already.
    """
    if row is None or engine.device != "cpu":
        return {}
    found = {}
    for name in [name for name in varying(engine.inputs) if name not in told][:MOST_DIMS]:
        most = _most(engine, row, name)
        if most is not None:
            found[name] = most
    return found


def _most(engine: Engine, row: Feed, name: str) -> int | None:
    """The size at which a run would take `DOUBT` times the memory of all; None if it grows too little to tell."""
    taken: list[tuple[int, int]] = []
    size, end = SMALLEST, perf_counter() + BUDGET_S
    while size <= LARGEST and perf_counter() < end:
        feed = draw(engine.inputs, [row], size, np.random.default_rng(0), {name: size})
        try:
            bytes_taken = min(_taken(engine, feed) for _ in range(2))  # what other models take only makes it more
        except ServeError:  # the model takes no such size
            break
        taken.append((size, bytes_taken))
        if bytes_taken >= ENOUGH:
            break
        size *= 2
    if len(taken) < 2 or taken[-1][1] < LEAST:
        return None
    (_, before), (size, last) = taken[-2:]
    growth = min(max(log2(last / max(before, MIB)), 1.0), STEEPEST)
    return max(size, int(size * (DOUBT * engine.memory.limit / last) ** (1 / growth)))


def _taken(engine: Engine, feed: Feed) -> int:
    """Bytes that the arena grows by for one run."""
    arena = engine.memory.arena
    arena.shrink()
    before = arena.taken()
    engine.run(feed)
    return max(0, arena.taken() - before)
