"""Transposes around pointwise operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from rows import rows

import ox
from ox import nn, ops
from ox.graph.passes.optimize import optimize
from ox.graph.record.recording import record
from ox.graph.replay import replay

gelu = nn.functional.gelu
W = ox.randn(3, 3)


def there_and_back(x: Any) -> Any:
    return (x.permute(0, 2, 1).sin() * 2.0).clamp(-1.0, 1.0).permute(0, 2, 1)


CASES: dict[str, tuple[Callable[[Any], Any], int]] = {
    "there and back": (there_and_back, 0),
    "a mixer": (lambda x: x + gelu(x.transpose(1, 2) @ W).transpose(1, 2), 2),
    "two permutations become one": (lambda x: gelu(x.permute(1, 2, 0)).permute(0, 2, 1), 1),
    "two sides": (lambda x: (x.permute(0, 2, 1) + x.exp().permute(0, 2, 1)).permute(0, 2, 1), 0),
    "two sides that lie otherwise": (lambda x: (x.permute(0, 2, 1) + x.permute(1, 2, 0)).permute(0, 2, 1), 3),
    "read in between": (lambda x: (lambda y: (y.permute(0, 2, 1), y.sum(1)))(gelu(x.permute(0, 2, 1))), 2),
    "a sum in between": (lambda x: x.permute(0, 2, 1).cumsum(1).permute(0, 2, 1), 2),
    "a row that is broadcast": (lambda x: (x.permute(0, 2, 1) * ox.arange(3).float()).permute(0, 2, 1), 2),
    "a number of one dimension": (lambda x: ops.Mul(x.permute(0, 2, 1), ox.ones(1) * 3).sin().permute(0, 2, 1), 0),
}  # fmt: skip


@rows("name", CASES)
def test_pairs(name: str) -> None:
    function, left = CASES[name]
    x = ox.randn(3, 3, 4)
    graph = record(function, {"x": x})
    expected = [t.numpy() for t in replay(graph, [x])]
    optimize(graph)
    assert sum(node.key == "Transpose" for node in graph.nodes) == left
    got = replay(graph, [x])
    for v, a, b in zip(graph.outputs, expected, got, strict=True):
        np.testing.assert_array_equal(b.numpy(), a)
        assert v.shape == a.shape


def test_sizes_in_between_are_those_of_the_new_layout() -> None:
    graph = record(there_and_back, {"x": ox.randn(2, 3, 4)})
    optimize(graph)
    for node in graph.nodes:
        assert node.outputs[0].shape == (2, 3, 4)


def test_a_batch_of_any_size() -> None:
    graph = record(there_and_back, {"x": ox.randn(1, 3, 4)}, dims={"x": ["batch", 3, 4]})
    x = ox.randn(5, 3, 4)
    expected = replay(graph, [x])[0].numpy()
    optimize(graph)
    assert not any(node.key == "Transpose" for node in graph.nodes)
    np.testing.assert_array_equal(replay(graph, [x])[0].numpy(), expected)
