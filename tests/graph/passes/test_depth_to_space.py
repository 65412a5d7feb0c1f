"""Pixels from channels are one operator."""

from __future__ import annotations

from typing import Any

import pytest
from checked_pass import after
from rows import rows

from ox import nn
from ox.graph.passes.depth_to_space import find_depth_to_space

F = nn.functional
SIZES = {"batch": [2, 1, 5], "h": [2, 3, 4], "w": [4, 2, 3]}


def blocks_first(x: Any) -> Any:
    n, c, h, w = x.shape
    return x.reshape(n, 2, 2, c // 4, h, w).permute(0, 3, 4, 1, 5, 2).reshape(n, c // 4, h * 2, w * 2)


def unequal(x: Any) -> Any:
    n, c, h, w = x.shape
    return x.reshape(n, c // 8, 2, 4, h, w).permute(0, 1, 4, 2, 5, 3).reshape(n, c // 8, h * 2, w * 4)


def other_order(x: Any) -> Any:
    n, c, h, w = x.shape
    return x.reshape(n, c // 4, 2, 2, h, w).permute(0, 1, 4, 3, 5, 2).reshape(n, c // 4, h * 2, w * 2)


@rows("dims", [["batch", 8, 2, 4], ["batch", 8, "h", "w"]], ids=["images of a size", "any size"])
@rows("function", [lambda x: F.pixel_shuffle(x, 2), blocks_first], ids=["CRD", "DCR"])
def test_shuffled_pixels(function: Any, dims: list[Any]) -> None:
    found, graph = after(find_depth_to_space, function, dims, {d: SIZES[d] for d in dims if isinstance(d, str)})
    assert found[-1:] == ["DepthToSpace"] and "Transpose" not in found
    assert graph.nodes[-1].attributes["blocksize"] == 2


@pytest.mark.parametrize("function", [unequal, other_order])
def test_other_orders_stay(function: Any) -> None:
    found, _ = after(find_depth_to_space, function, ["batch", 8, 2, 4], {"batch": [2, 3]})
    assert "Transpose" in found and "DepthToSpace" not in found
