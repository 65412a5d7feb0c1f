"""A GroupNormalization is an InstanceNormalization of its groups."""

from __future__ import annotations

from typing import Any

import numpy as np
from checked_pass import after
from rows import rows

import ox
from ox import nn
from ox.graph.passes.group_norm import expand_group_norms

SIZES = {"batch": [2, 1, 5], "h": [3, 4, 2], "w": [5, 2, 3]}
EXPANDED = ["Reshape", "InstanceNormalization", "Shape", "Reshape", "Mul", "Add"]


def norm(seed: int) -> Any:
    made = nn.GroupNorm(2, 6, eps=0.1)
    for i, p in enumerate(made.parameters()):
        p.data.copy_(ox.from_numpy(np.random.default_rng(seed + i).normal(size=6).astype(np.float32)))
    return made


def left(function: Any, dims: list[Any], module: Any) -> list[str]:
    sizes = {d: SIZES[d] for d in dims if isinstance(d, str)}
    weights = dict(module.named_parameters())
    return after(lambda graph, known: expand_group_norms(graph), function, dims, sizes, weights, exact=False)[0]


@rows("dims", [["batch", 6, 3, 4], ["batch", 6, "h", "w"], ["batch", 6, 7], ["batch", 6, 2, 3, 2]], ids=str)
def test_of_any_rank(dims: list[Any]) -> None:
    module = norm(0)
    assert left(module, dims, module) == EXPANDED


def test_weights_that_are_read_twice_stay() -> None:
    module = norm(1)
    assert left(lambda x: module(module(x)), ["batch", 6, 4], module) == ["GroupNormalization"] * 2


def test_without_spatial_dimensions() -> None:
    module = norm(2)
    assert left(module, ["batch", 6], module) == ["GroupNormalization"]


def test_half_precision_stays() -> None:
    module = norm(3).half()
    found = left(lambda x: module(x.half()).float(), ["batch", 6, 4], module)
    assert "GroupNormalization" in found and "InstanceNormalization" not in found
