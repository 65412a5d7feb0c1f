"""Every operator and its gradient in the engines that are stock runtimes: refused with an error, or eager's numbers."""

from __future__ import annotations

import pytest
from node_cases import operators
from recorded_operators import recorded
from rows import rows
from samples import samples

from ox.core.operator import OPS
from ox.engines import find
from ox.engines.engine import Task
from ox.errors import OxError
from ox.graph.replay import replay
from ox.tolerance import compare


@rows("name", operators(), items=8)
@rows("engine", ["onnxruntime", pytest.param("openvino", marks=pytest.mark.slow)])
def test_eager_numbers_or_an_error(engine: str, name: str) -> None:
    pytest.importorskip(engine, reason=f"{engine} is not installed")
    if OPS[name].random:
        pytest.skip("each run draws other numbers")
    bad = []
    for sample in samples(name):
        found = recorded(name, sample, fixed=True, fused=True)
        if found is None:
            continue
        graph, inputs = found
        expected = [t.array.copy() for t in replay(graph, inputs)]
        try:
            results = find(engine).build(Task(graph))([t.array for t in inputs])
        except OxError:
            continue
        for i, (wanted, got) in enumerate(zip(expected, results, strict=True)):
            difference = compare(got, wanted)
            if not difference.ok:
                bad.append(f"{sample.name} {sample.attributes}: output {i} {list(got.shape)} differs by {difference}")
    assert not bad, "\n".join(bad)
