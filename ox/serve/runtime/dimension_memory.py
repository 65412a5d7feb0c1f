"""What the memory of runs means for the sizes of a model's inputs: which are dimension_limits, before anything is run.

For each dimension that varies, a few runs of growing size tell how much memory they take and how that grows. Sizes that
would need more than twice the memory there is are refused by the shape alone. Between that and what really fits, the
arena decides (`ox.serve.runtime.memory`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2

import numpy as np

from ox.errors import LoadError, ServeError
from ox.graph.contract import TensorInfo
from ox.serve.runtime.instance import Feed
from ox.serve.runtime.proof import draw
from ox.serve.runtime.session import Engine

MIB = 1 << 20
MIN_SIZE, MAX_SIZE = 16, 1 << 16  # sizes that are tried
ENOUGH = 64 * MIB  # a run that takes so much shows how memory grows
MIN_GROWTH = 32 * MIB  # one that takes less shows nothing: the arena grows in pieces
COMPARABLE = 2 * MIB  # runs that take less do not show growth: what they take is a piece or none
POINTS = 3  # growth is that of so many runs: over more sizes the pieces of the arena matter less
BUDGET_S = 0.5  # of the processor, for each dimension: how busy the machine is does not change what is found
STEP = 4  # a run of twice the size may take so many times as long
SHARE = 0.5  # of the time limit of the load, after which no more sizes are tried
MAX_DIMS = 4
DOUBT = 2  # what is predicted may be wrong by so much
MAX_EXPONENT = 3.0  # exponent of the growth


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
            what = f"{name} needs more memory than its runs may take, even for one sample"
            raise LoadError(what, expected=error.expected, got=error.got, hint="--limit memory=...") from error


def varying(inputs: Sequence[TensorInfo]) -> list[str]:
    """The names of the dimensions that vary and do not count rows; "None" for those without a name."""
    rows = inputs[0].dims[:1] if inputs else ()
    found: dict[str, None] = {}
    for info in inputs:
        for axis, dim in enumerate(info.dims):
            if isinstance(dim, int) or (axis == 0 and info.dims[:1] == rows):
                continue
            if dim is None or (dim,) != rows:  # those without a name are not one another
                found[str(dim)] = None
    return list(found)


def dimension_limits(engine: Engine, row: Feed | None, told: Mapping[str, int]) -> dict[str, int]:
    """The most that each dimension may be, as far as a few runs can tell.

    Args:
        engine: on the CPU; a GPU's memory is not measured.
        row: a valid input, from which others are made.
        told: dimensions that already have limits.
    """
    if row is None or engine.device != "cpu":
        return {}
    found = {}
    for name in [name for name in varying(engine.inputs) if name not in told][:MAX_DIMS]:
        most = _most(engine, row, name)
        if most is not None:
            found[name] = most
    return found


def _most(engine: Engine, row: Feed, name: str) -> int | None:
    """The size at which a run would take `DOUBT` times the memory of all; None if it grows too little to tell."""
    taken = _tries(engine, row, name)
    if len(taken) < 2 or taken[-1][1] < MIN_GROWTH:
        return None
    comparable = [point for point in taken if point[1] >= COMPARABLE][-POINTS:]
    (small, before), (size, last) = comparable[0], comparable[-1]
    growth = log2(last / before) / log2(size / small) if small < size else MAX_EXPONENT
    growth = min(max(growth, 1.0), MAX_EXPONENT)
    return max(size, int(size * (DOUBT * engine.memory.limit / last) ** (1 / growth)))


def _tries(engine: Engine, row: Feed, name: str) -> list[tuple[int, int]]:
    """Sizes and the bytes that a run of each takes, up to one that shows enough."""
    taken: list[tuple[int, int]] = []
    size, spent, following = MIN_SIZE, 0.0, 0.0
    loading, thread_time = engine.loading, engine.loading.clock.thread_time
    while size <= MAX_SIZE and spent + following <= BUDGET_S:
        if loading.limit_s is not None and loading.seconds > SHARE * loading.limit_s:
            break
        started = thread_time()
        feed = draw(engine.inputs, [row], size, np.random.default_rng(0), {name: size})
        try:
            bytes_taken = min(_taken(engine, feed) for _ in range(2))  # what other models take only makes it more
        except ServeError:  # the model takes no such size
            break
        taken.append((size, bytes_taken))
        if bytes_taken >= ENOUGH:
            break
        following = STEP * (thread_time() - started)
        spent += following / STEP
        size *= 2
    return taken


def _taken(engine: Engine, feed: Feed) -> int:
    """Bytes that the arena grows by for one run."""
    arena = engine.memory.arena
    arena.shrink()
    before = arena.bytes_allocated()
    engine.run(feed)
    return max(0, arena.bytes_allocated() - before)
