"""Where the graph says that rows are independent, ONNX Runtime agrees, whatever stands in the other rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from ox.serve.engine.row_independence import rows_mix
from tests.serve.engine.row_independence.random_graph import Array, Growing, session

TAILS = [(4,), (3,), (2, 3), (3, 3), (2, 3, 3), (4, 2), (1, 4)]


def grown(seed: int) -> Growing:
    random = np.random.default_rng(seed)
    graph = Growing(random, TAILS[int(random.integers(len(TAILS)))], bool(random.integers(2)))
    for _ in range(int(random.integers(2, 14))):
        graph.grow()
    return graph


def batches(graph: Growing) -> list[Array]:
    """Rows beside a spike, beside NaN, beside themselves in another order."""
    random = np.random.default_rng(1)
    rows = random.standard_normal((6, *graph.tail)).astype(np.float32)
    spiked, broken = rows.copy(), rows.copy()
    spiked[2] *= 1e4
    broken[3] = np.nan
    return [rows[:1], rows[:2], rows[:3], rows[:5], spiked[:4], spiked[::-1], broken, spiked[2:4]]


def differs(run: Any, batch: Array) -> str | None:
    """How a row of a batch differs from the same row alone; None if it does not, or does not run alone."""
    try:
        alone = [run(batch[place : place + 1]) for place in range(len(batch))]
    except Exception:
        return None
    try:
        together = run(batch)
    except Exception:
        return None  # an error is no wrong answer: the server runs the rows one by one then
    if together.shape[:1] != (len(batch),):
        return f"{len(batch)} rows in, {together.shape} out"
    for place, expected in enumerate(alone):
        got = together[place : place + 1]
        if got.shape != expected.shape:
            return f"row {place} has another shape"
        finite = np.abs(expected[np.isfinite(expected)])
        bound = 1e-3 * (1 + float(finite.max(initial=0)))
        if not np.allclose(got, expected, rtol=1e-3, atol=bound, equal_nan=True):
            return f"row {place} of {len(batch)}: {got.ravel()[:4]} instead of {expected.ravel()[:4]}"
    return None


def judged(seed: int) -> tuple[bool, bool]:
    """Whether the walk trusts a graph, and whether runs do; asserts that the walk does not alone."""
    graph = grown(seed)
    output = list(graph.shapes)[-1]
    model = graph.model(output)
    why = rows_mix(model)
    runs = session(model)
    found = [differs(lambda x: runs.run(None, {"x": x})[0], batch) for batch in batches(graph)]
    wrong = next((text for text in found if text), None)
    assert why is not None or wrong is None, f"seed {seed}: {wrong}\n{[n.op_type for n in graph.nodes]}"
    return why is None, wrong is None


@pytest.mark.parametrize("part", range(6))
def test_never_trusted_wrongly(part: int) -> None:
    seen = Counter(judged(seed) for seed in range(60 * part, 60 * (part + 1)))
    assert seen[True, True] >= 3 and seen[False, False] >= 10, seen
