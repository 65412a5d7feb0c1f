"""Recompute or keep: bits stay, bytes go down, and what is expensive never runs again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from recorded_step import FusedRecording
from rows import rows

import ox
from ox import nn
from ox.graph.ir import Graph, Value
from ox.graph.passes.cleanup import remove_dead
from ox.graph.passes.recompute import Choice, choose, is_cheap, recompute, size_of
from ox.graph.record.recording import record
from ox.graph.replay import replay, values

ALL = 1 << 40


def model() -> Any:
    layer = nn.TransformerEncoderLayer(16, 4, 32, 0.0, activation="gelu", batch_first=True, norm_first=True)
    return nn.Sequential(layer, nn.Linear(16, 8), nn.SiLU(), nn.Linear(8, 4), nn.Tanh())


class Split:
    """A recorded loss and its gradients, cut where the backward pass begins."""

    def __init__(self, module: Any, x: Any) -> None:
        self.parameters = dict(module.named_parameters())
        self.marks: list[int] = []
        recording = FusedRecording()

        def step(x: Any, *_: Any) -> dict[str, Any]:
            loss = (module(x) ** 2).mean()
            self.marks.append(recording.count())
            gradients = ox.autograd.grad(loss, list(self.parameters.values()))
            return {"loss": loss, **dict(zip((f"{name}.grad" for name in self.parameters), gradients, strict=True))}

        self.whole = record(step, {"x": x, **self.parameters}, recording=recording)
        self.arrays = [x, *(p.detach() for p in self.parameters.values())]
        nodes, cut = self.whole.nodes, self.marks[0]
        self.nodes, later = nodes[:cut], nodes[cut:]
        made = {v for node in later for v in node.outputs}
        self.free = {*self.whole.inputs, *self.whole.constants}
        read = dict.fromkeys(v for node in later for v in node.inputs if v is not None and v not in made)
        self.wanted = [v for v in read if v not in self.whole.constants]
        outputs = [v for v in self.whole.outputs if v in made]
        self.backward = Graph(list(self.wanted), outputs, later, dict(self.whole.constants))
        self.graph = Graph(list(self.whole.inputs), [], list(self.nodes), dict(self.whole.constants))

    def gradients(self, choice: Choice) -> list[np.ndarray]:
        """Both passes, the second one fed only with what the first one kept, and with what is free."""
        known = values(self.graph, self.arrays)
        recompute(self.backward, choice)
        allowed = {*choice.kept, *self.free}
        assert all(v in allowed for v in self.backward.inputs)
        return [t.numpy() for t in replay(self.backward, [known[v] for v in self.backward.inputs])]


@rows("share", [1.0, 0.7, 0.5, 0.0])
def test_bits_stay_whatever_the_budget(share: float) -> None:
    ox.manual_seed(0)
    split = Split(model(), ox.randn(2, 5, 16))
    expected = [t.numpy() for t in replay(split.whole, split.arrays)[1:]]
    everything = choose(split.nodes, split.wanted, split.free, ALL)
    assert not everything.recomputed and everything.kept == [v for v in split.wanted if v not in split.free]
    choice = choose(split.nodes, split.wanted, split.free, int(share * everything.bytes))
    assert choice.bytes <= everything.bytes and (share == 1.0) == (not choice.recomputed)
    assert all(map(is_cheap, choice.recomputed))
    for a, b in zip(expected, split.gradients(choice), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.usefixtures("library")
def test_less_memory_is_more_work() -> None:
    split = Split(model(), ox.randn(2, 5, 16))
    everything = choose(split.nodes, split.wanted, split.free, ALL)
    least = choose(split.nodes, split.wanted, split.free, 0)
    assert least.bytes < 0.8 * everything.bytes
    counts = []
    for share in (1.0, 0.95, 0.9, 0.85):
        budget = int(share * everything.bytes)
        choice = choose(split.nodes, split.wanted, split.free, budget)
        assert choice.bytes <= max(budget, least.bytes)
        counts.append(len(choice.recomputed))
    assert counts == sorted(counts) and counts[0] == 0 < counts[-1]


def choice_of(function: Callable[..., Any], wanted: list[str], budget: int = 0) -> tuple[list[str], list[str]]:
    """What is kept and recomputed, by operator, where the results of these operators are wanted."""
    graph = record(function, {"x": ox.ones(8, 8), "w": ox.ones(8, 8)})
    remove_dead(graph)
    names: dict[Value, str] = {v: n.key for n in graph.nodes for v in n.outputs}
    asked = [v for v, key in names.items() if key in wanted]
    choice = choose(graph.nodes, asked, {*graph.inputs, *graph.constants}, budget)
    return [names[v] for v in choice.kept], [n.key for n in choice.recomputed]


def test_what_inputs_make_is_not_kept() -> None:
    assert choice_of(lambda x, w: (x * w).exp().sin().sum(), ["Mul", "Exp"]) == ([], ["Mul", "Exp"])


def test_products_are_kept() -> None:
    assert choice_of(lambda x, w: (x @ w).exp().sum(), ["MatMul"]) == (["MatMul"], [])
    assert choice_of(lambda x, w: (x @ w).exp().sum(), ["MatMul", "Exp"]) == (["MatMul"], ["Exp"])


def test_one_value_stands_for_two() -> None:
    """Neither of them alone would save anything."""

    def two(x: Any, w: Any) -> Any:
        y = x @ w
        return (y.exp() @ w + y.sin() @ w).sum()

    assert choice_of(two, ["Exp", "Sin"]) == (["MatMul"], ["Exp", "Sin"])


def test_a_swap_that_saves_nothing_is_not_made() -> None:
    assert choice_of(lambda x, w: ((x @ w).exp() @ w).sum(), ["Exp"]) == (["Exp"], [])


def test_random_numbers_are_kept() -> None:
    def noisy(x: Any, w: Any) -> Any:
        return (ox.ops.RandomNormalLike(x) * w).exp().sum()

    assert choice_of(noisy, ["RandomNormalLike", "Exp"]) == (["RandomNormalLike"], ["Mul", "Exp"])


def test_sizes() -> None:
    assert size_of(Value("v", np.dtype(np.float32), None, (2, 3))) == 24
    assert size_of(Value("v", np.dtype(np.int64), None, ())) == 8
