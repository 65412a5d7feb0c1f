"""Calls that ONNX Runtime answers with something made up go to the kernel, which is right or says what is wrong."""

from __future__ import annotations

import numpy as np
import pytest

import ox
from ox import ops
from ox.core.operator import Operator
from ox.errors import ShapeError


@pytest.mark.parametrize("pool", [ops.MaxPool, ops.AveragePool], ids=lambda op: op.name)
def test_a_window_larger_than_the_padded_input_is_refused(pool: Operator) -> None:
    with pytest.raises(ShapeError, match="larger than the padded size"):
        pool(ox.ones(2, 3, 1, 1), kernel_shape=[2, 2])
    assert pool(ox.ones(2, 3, 1, 1), kernel_shape=[2, 2], pads=[1, 1, 0, 0]).shape == (2, 3, 1, 1)


def test_conv_over_no_channels_is_zero() -> None:
    for _ in range(3):
        np.testing.assert_array_equal(ops.Conv(ox.zeros(1, 0, 5, 5), ox.zeros(2, 0, 3, 3)).numpy(), 0)
