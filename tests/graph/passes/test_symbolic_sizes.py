"""Symbolic sizes are the sizes of the run, for every operator and its gradient; and they say more than ONNX's."""

from __future__ import annotations

from typing import Any

import pytest
from node_cases import operators
from recorded_operators import recorded
from rows import rows
from samples import samples

import ox
from ox import nn
from ox.autograd.grad_mode import no_grad
from ox.core.operator import OPS
from ox.graph.ir import Graph
from ox.graph.passes.polynomial import Polynomial
from ox.graph.passes.size_analysis import analyze_sizes
from ox.graph.record.recording import record
from ox.graph.replay import values


def wrong_sizes(graph: Graph, inputs: list[Any]) -> tuple[list[str], int]:
    """What the analysis says otherwise than a run, and of how many sizes with names it says something."""
    found, known, wrong, count = analyze_sizes(graph), {}, [], 0
    with no_grad():
        run = values(graph, inputs)
    for value, tensor in zip(graph.inputs, inputs, strict=True):
        known.update({d: n for d, n in zip(value.dims or (), tensor.static_shape, strict=True) if isinstance(d, str)})
    for value in graph.values():
        tensor = run.get(value)
        for kind, said, true in (
            ("sizes", found.of(value), None if tensor is None else tensor.array.shape),
            ("numbers", found.numbers.get(value), None if tensor is None else tensor.array.reshape(-1)),
        ):
            if said is None or true is None:
                continue
            if len(said) != len(true):
                wrong.append(f"{kind} of {value}: {len(said)} of them, {len(true)} in the run")
                continue
            for size, n in zip(said, true, strict=True):
                names = {name for product, _ in size.terms for name in product}
                if names <= known.keys():
                    count += bool(names)
                    if size.at(known) != n:
                        wrong.append(f"{kind} of {value}: {size}, in the run {n}")
    return wrong, count


@rows("name", operators(), items=8)
def test_every_operator_and_its_gradient(name: str) -> None:
    if OPS[name].data_dependent_shape and name == "Unique":
        pytest.skip("its samples have results that a recording does not name")
    for sample in samples(name):
        found = recorded(name, sample, fixed=False, fused=False)
        if found is not None:
            wrong, _ = wrong_sizes(*found)
            assert not wrong, f"{sample.name}: {wrong}"


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_a_model_at_other_sizes(batch: int) -> None:
    """With three names, at sizes that the recording did not have."""
    ox.manual_seed(0)
    conv, layer, down = nn.Conv2d(3, 8, 3, 2, 1), nn.Linear(8, 12), nn.MaxPool2d(2)

    def model(x: Any) -> Any:
        y = down(conv(x)).flatten(2).transpose(1, 2)
        y = layer(y).reshape(x.shape[0], -1, 3, 4).permute(0, 2, 1, 3)
        first, second = ox.cat([y, y[:, :1]], 1).softmax(-1).chunk(2, 1)
        return (first @ second.transpose(-1, -2)).sum(-1, keepdim=True) + y.mean()

    graph = record(model, {"x": ox.randn(2, 3, 16, 24)}, dims={"x": ["batch", 3, "h", "w"]})
    wrong, count = wrong_sizes(graph, [ox.randn(batch, 3, 20, 36)])
    assert not wrong and count > 20


def test_what_is_equal_is_known_to_be() -> None:
    """Rows of a product go back to where they came from: ``(batch·length·8) / (length·8)`` is the batch."""

    def model(x: Any) -> Any:
        rows = ox.ops.Reshape(x, ox.tensor([-1, 8]))
        return rows.reshape(-1, x.shape[1], 8)

    graph = record(model, {"x": ox.randn(2, 6, 8)}, dims={"x": ["batch", "length", 8]})
    sizes = analyze_sizes(graph)
    assert sizes.of(graph.outputs[0]) == tuple(map(Polynomial.of, ("batch", "length", 8)))


def test_polynomials() -> None:
    n, m, two = Polynomial.of("n"), Polynomial.of("m"), Polynomial.of(2)
    assert (n + m) * (n + m) == n * n + two * m * n + m * m
    assert (n * m * two).divided(n * two) == m
    assert ((n + two) * (m + n) * m).divided((n + two) * m) == m + n and (n * n - m * m).divided(n - m) == n + m
    assert (n + two).divided(two) is None and (n * two).divided(n + m) is None and (n * two).divided(m) is None
    assert (n - n).number == 0 and two.number == 2 and n.number is None
    assert (n * n - two).at({"n": 5}) == 23 and str(two * n + Polynomial.of(1)) == "1 + 2·n"
    assert isinstance(hash(n), int)
