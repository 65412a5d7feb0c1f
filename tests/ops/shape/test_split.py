"""Split into sizes that a file of another tool may name."""

from __future__ import annotations

import numpy as np
import pytest
from rows import rows

from ox import ops
from ox.errors import ShapeError


@rows("sizes", [[-1, 5], [5, -1], [2, 1], [2, 3]])
def test_sizes_that_are_no_cut(sizes: list[int]) -> None:
    with pytest.raises(ShapeError, match=r"Split of axis 1[^~]*add to 4, none of them negative"):
        ops.Split(np.ones((2, 4), np.float32), np.array(sizes), axis=1, outputs=2)


def test_a_piece_of_no_size() -> None:
    none, all_ = ops.Split(np.ones((2, 4), np.float32), np.array([0, 4]), axis=1, outputs=2)
    assert none.shape == (2, 0) and all_.shape == (2, 4)
