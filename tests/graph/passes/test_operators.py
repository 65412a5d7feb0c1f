"""`optimize` on every operator and its gradient: at fixed and at named sizes, with fused functions and without."""

from __future__ import annotations

import pytest
from node_cases import operators
from recorded_operators import recorded
from rows import rows
from samples import samples

from ox.core.operator import OPS
from ox.graph.passes.optimize import optimize
from ox.graph.replay import replay
from ox.tolerance import compare


@rows("name", operators(), items=24)
def test_every_operator_and_its_gradient(name: str) -> None:
    bad = []
    if OPS[name].random:
        pytest.skip("each run draws other numbers")
    for sample in samples(name):
        for fixed, fused in ((True, True), (True, False), (False, False)):
            found = recorded(name, sample, fixed=fixed, fused=fused)
            if found is None:
                continue
            graph, inputs = found
            expected = [t.array.copy() for t in replay(graph, inputs)]
            before = len(graph.nodes)
            optimize(graph)
            assert len(graph.nodes) <= before
            for i, (a, y) in enumerate(zip(expected, replay(graph, inputs), strict=True)):
                difference = compare(y.array, a)
                if not difference.ok:
                    bad.append(f"{sample.name}, fixed {fixed}, fused {fused}: output {i} differs by {difference}")
    assert not bad, "\n".join(bad)
