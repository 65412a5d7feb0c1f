"""What a training step asks of a GPU, in the third step and later: launches, waits, copies. None of it may grow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from count_table import CountTable
from training_steps import COUNTERS, MODELS, WAYS, losses, names_of_types, prepared

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("way", WAYS)
def test_a_step(make: Any, way: str, count_table: CountTable) -> None:
    found = losses(make, way, count_table.counting(f"{make.__name__}, {way}", COUNTERS))
    assert found[-1] < found[0] and np.isfinite(found).all()


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("way", ["eager", "amp"])
def test_a_step_makes_no_texts_of_types(make: Any, way: str) -> None:
    """Each takes the host as long as a small kernel."""
    assert names_of_types(lambda: str(np.dtype(np.float32))) == 1
    step = prepared(make, way)
    step()
    assert names_of_types(step) == 0
