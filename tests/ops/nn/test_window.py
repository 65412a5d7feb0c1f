"""Windows that a file of another tool may ask for, and that there are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rows import rows

from ox import ops
from ox.errors import ArgumentError, ShapeError

X, W = np.ones((1, 2, 6), np.float32), np.ones((2, 2, 2), np.float32)


@rows("pool", ["MaxPool", "AveragePool", "LpPool"])
@rows("given", [{"kernel_shape": [0]}, {"kernel_shape": [-3]}, {"strides": [0]}, {"strides": [-1]}, {"dilations": [0]}])
def test_a_pool_whose_window_does_not_exist(pool: str, given: dict[str, Any]) -> None:
    ((name, value),) = given.items()
    with pytest.raises(ArgumentError, match=rf"{name} \[{value[0]}\] of a window[^~]*1 or more"):
        getattr(ops, pool)(X, **({"kernel_shape": [2]} | given))


@pytest.mark.parametrize("given", [{"strides": [0]}, {"strides": [-1]}, {"dilations": [0]}])
def test_a_convolution_whose_window_does_not_exist(given: dict[str, Any]) -> None:
    for convolution in (ops.Conv, ops.ConvTranspose):
        with pytest.raises(ArgumentError, match=r"of a window[^~]*1 or more"):
            convolution(X, W, **given)


@pytest.mark.parametrize("group", [0, -1])
def test_groups_that_there_are_not(group: int) -> None:
    for convolution in (ops.Conv, ops.ConvTranspose):
        with pytest.raises(ShapeError, match=rf"cannot apply a kernel[^~]*group={group}"):
            convolution(X, W, group=group)
