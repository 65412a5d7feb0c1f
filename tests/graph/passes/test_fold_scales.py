"""A factor for each feature goes into the weights before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from checked_pass import after
from rows import rows

import ox
from ox import nn
from ox.graph.passes.fold_scales import fold_scales

ox.manual_seed(0)
LAYER, PLAIN, CONV = nn.Linear(4, 6), nn.Linear(4, 6, bias=False), nn.Conv2d(4, 6, 1)
SCALE, PLANE = ox.randn(6), ox.randn(6, 1, 1)


def read_twice(x: Any) -> Any:
    y = LAYER(x)
    return y * SCALE, y.exp()


def used_twice(x: Any) -> Any:
    return LAYER(LAYER(x)[..., :4]) * SCALE


# function, dims, how many Muls are left
CASES: dict[str, tuple[Callable[[Any], Any], list[Any], int]] = {
    "rows": (lambda x: LAYER(x) * SCALE, ["batch", 4], 0),
    "through a Reshape": (lambda x: SCALE * LAYER(x), ["batch", 3, 4], 0),
    "without a bias": (lambda x: PLAIN(x) * SCALE, ["batch", 4], 0),
    "a number": (lambda x: LAYER(x) * 0.25, ["batch", 4], 0),
    "a convolution": (lambda x: CONV(x) * PLANE, ["batch", 4, 2, 6], 0),
    "along the width": (lambda x: CONV(x) * SCALE, ["batch", 4, 2, 6], 1),
    "along the rows": (lambda x: LAYER(x) * SCALE[:, None], [6, 4], 1),
    "the result is read": (read_twice, ["batch", 4], 1),
    "the layer is used twice": (used_twice, ["batch", 4], 1),
    "what is no constant": (lambda x: LAYER(x) * x.sum(), ["batch", 4], 1),
}


@rows("name", CASES)
def test_cases(name: str) -> None:
    function, dims, left = CASES[name]
    before = [t.detach().numpy().copy() for m in (LAYER, PLAIN, CONV) for t in m.parameters()]
    modules = {"layer": LAYER, "plain": PLAIN, "conv": CONV}
    weights = {f"{key}.{name}": t for key, m in modules.items() for name, t in m.named_parameters()}
    sizes = {"batch": [2, 1, 5]} if "batch" in dims else {}
    found, _ = after(fold_scales, function, dims, sizes, {**weights, "scale": SCALE, "plane": PLANE}, exact=False)
    assert found.count("Mul") == left
    now = [t.detach().numpy() for m in (LAYER, PLAIN, CONV) for t in m.parameters()]
    assert all(map(np.array_equal, before, now)), "the model is as it was"
