"""What a training step asks of a GPU, in the third step and later: launches, waits, copies. None of it may grow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from count_table import CountTable
from training_steps import COUNTERS, MODELS, WAYS, losses

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("way", WAYS)
def test_a_step(make: Any, way: str, count_table: CountTable) -> None:
    found = losses(make, way, count_table.counting(f"{make.__name__}, {way}", COUNTERS))
    assert found[-1] < found[0] and np.isfinite(found).all()
