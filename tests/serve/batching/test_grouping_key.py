"""Requests with sizes that the walk over the graph does not cover share no batch, not even with their like."""

from __future__ import annotations

import numpy as np
import pytest

from ox.graph.contract import Array, TensorInfo
from ox.serve.protocol.v2 import signature
from ox.serve.protocol.v2.signature import Signature
from ox.serve.runtime.row_independence import size

INPUTS = [TensorInfo("x", "FP32", ("batch", 4)), TensorInfo("l", "FP32", ("batch", "t"))]


def feed(length: int) -> dict[str, Array]:
    return {"x": np.zeros((1, 4), np.float32), "l": np.broadcast_to(np.float32(0), (1, length))}


@pytest.mark.parametrize(("length", "alone"), [(1, False), (3, False), (0, True), (1 << 30, True)])
def test_sizes_that_run_alone(length: int, alone: bool) -> None:
    measured = Signature(INPUTS, [], 10, 0)
    (rows, one), (_, two) = (measured.rows_and_key(feed(length)) for _ in range(2))
    assert rows == 1 and hash(one) is not None and (one != two) is alone


def test_both_sides_mean_the_same() -> None:
    assert signature.LONGEST == size.LONGEST
