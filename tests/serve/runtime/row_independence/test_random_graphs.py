"""Where the graph says that rows are independent, ONNX Runtime agrees, whatever stands in the other rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
from onnx import ModelProto
from rows import rows

from ox.serve.runtime.row_independence import rows_mix
from tests.serve.runtime.row_independence.random_graph import STEPS, Array, Growing, scan, session
from tests.serve.runtime.row_independence.random_sizes import SIZE_STEPS

TAILS = [(4,), (3,), (2, 3), (3, 3), (2, 3, 3), (4, 2), (1, 4)]
# A Scan over an empty axis that is not the first ends the process (ONNX Runtime 1.32).
WITH_SIZES = [*(step for step in STEPS if step is not scan), *SIZE_STEPS, *SIZE_STEPS]
LENGTHS = [1, 2, 3, 4, 7, 16]
Feed = dict[str, Array]
Run = Callable[[Feed], Array]


def grown(seed: int) -> Growing:
    random = np.random.default_rng(seed)
    graph = Growing(random, TAILS[int(random.integers(len(TAILS)))], bool(random.integers(2)), STEPS)
    for _ in range(int(random.integers(2, 14))):
        graph.grow()
    return graph


def grown_with_sizes(seed: int) -> Growing:
    random = np.random.default_rng([seed, 1])
    tail, length = TAILS[int(random.integers(len(TAILS)))], int(random.choice(LENGTHS[:5]))
    graph = Growing(random, tail, bool(random.integers(2)), WITH_SIZES, length)
    for _ in range(int(random.integers(2, 12))):
        graph.grow()
    return graph


def batches(graph: Growing) -> Iterator[Feed]:
    """Rows beside a spike, beside NaN, in another order; of other lengths where the file leaves them open."""
    random = np.random.default_rng(1)
    for length in [None] if graph.length is None else [graph.length, *LENGTHS]:
        tail = graph.tail
        if length != graph.length and graph.symbolic:
            tail = tuple(int(random.integers(1, 6)) for _ in tail)
        rows = random.standard_normal((6, *tail)).astype(np.float32)
        spiked, broken = rows.copy(), rows.copy()
        spiked[2] *= 1e4
        broken[3] = np.nan
        variants = [rows[:1], rows[:2], rows[:3], rows[:5], spiked[:4], spiked[::-1], broken, spiked[2:4]]
        if length is None:
            yield from ({"x": x} for x in variants)
            continue
        other = random.standard_normal((6, length)).astype(np.float32)
        for x in variants if length == graph.length else [rows[:2], rows[:3], spiked]:
            yield {"x": x, "l": other[: len(x)]}


def differs(run: Run, plain: Run, batch: Feed) -> str | None:
    """How a row of a batch differs from the same row alone; None if it does not, or does not run alone.

    What is no error only because ONNX Runtime's optimizer makes a -1 of a size (ReshapeFusion) does not count.
    """
    count = len(batch["x"])
    rows = [{name: array[row : row + 1] for name, array in batch.items()} for row in range(count)]
    try:
        alone = [plain(row) for row in rows]
        alone = alone if run is plain else [run(row) for row in rows]
    except Exception:
        return None
    try:
        together = run(batch)
    except Exception:
        return None  # an error is no wrong answer: the server runs the rows one by one then
    if together.shape[:1] != (count,):
        return f"{count} rows in, {together.shape} out"
    for place, expected in enumerate(alone):
        got = together[place : place + 1]
        if got.shape != expected.shape:
            return f"row {place} has another shape"
        if np.isnan(rows[place]["x"]).any():  # the largest of NaN and a number is either, as the kernel likes
            continue
        finite = np.abs(expected[np.isfinite(expected)])
        bound = 1e-3 * (1 + float(finite.max(initial=0)))
        if not np.allclose(got, expected, rtol=1e-3, atol=bound, equal_nan=True):
            return f"row {place} of {count}: {got.ravel()[:4]} instead of {expected.ravel()[:4]}"
    return None


def runner(model: ModelProto, optimised: bool = False) -> Run:
    runs = session(model, optimised)
    return lambda feed: runs.run(None, feed)[0]  # type: ignore[no-any-return]


def judged(graph: Growing, name: str, optimised: bool = False) -> tuple[bool, bool]:
    """Whether the walk trusts an output, and whether runs do; asserts that the walk does not alone."""
    model = graph.model(name)
    why = rows_mix(model)
    plain = runner(model)
    run = runner(model, True) if optimised else plain
    wrong = next((text for batch in batches(graph) if (text := differs(run, plain, batch))), None)
    assert why is not None or wrong is None, f"{name}: {wrong}\n{[n.op_type for n in graph.nodes]}"
    return why is None, wrong is None


@rows("part", range(6), fast=3)
def test_never_trusted_wrongly(part: int) -> None:
    graphs = map(grown, range(60 * part, 60 * (part + 1)))
    seen = Counter(judged(graph, list(graph.shapes)[-1]) for graph in graphs)
    assert seen[True, True] >= 3 and seen[False, False] >= 10, seen


def trusted(graph: Growing) -> list[str]:
    """The last outputs that the walk trusts."""
    likely = [name for name, shape in graph.shapes.items() if shape[:1] == graph.shapes["x"][:1] and name not in "xl"]
    return [name for name in likely if rows_mix(graph.model(name)) is None][-3:]


@rows("optimised", [False, True], ids=["plain", "optimised"])
@rows("part", range(3))
def test_sizes_that_are_calculated(part: int, optimised: bool) -> None:
    """Branches, quotients, empty slices; and what ONNX Runtime's optimizer makes of them."""
    graphs = map(grown_with_sizes, range(25 * part, 25 * (part + 1)))
    seen = Counter(judged(graph, name, optimised) for graph in graphs for name in trusted(graph))
    assert seen[True, True] >= 10, seen
