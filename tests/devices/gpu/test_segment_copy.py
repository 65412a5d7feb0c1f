"""Runs of bytes are copied on a GPU, whatever they are aligned to, by one launch."""

from __future__ import annotations

import numpy as np
import pytest

from ox.devices.gpu.cupy_device import cupy
from ox.devices.gpu.segment_copy import copy_runs

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("unit", [1, 2, 4, 8, 16, 48])
def test_runs_of_several_tables(unit: int) -> None:
    numbers = np.random.default_rng(0).integers(0, 256, (2, 5, 40, unit)).astype(np.uint8)
    source, target = cupy().asarray(numbers), cupy().zeros((2, 3, 5, 9 * unit), np.uint8)
    starts = np.array([0, 13, 31])
    from_, to = (int(array.data.ptr) for array in (source, target))
    part = 5 * 9 * unit
    columns = (
        from_ + np.arange(2)[:, None] * numbers[0].size + starts * unit,
        to + np.arange(2)[:, None] * 3 * part + np.arange(3) * part,
    )
    copy_runs(*columns, 5, 9 * unit, 40 * unit, 9 * unit)
    for each in range(2):
        for place, start in enumerate(starts):
            expected = numbers[each, :, start : start + 9].reshape(5, -1)
            np.testing.assert_array_equal(target[each, place].get(), expected)


def test_an_exchange() -> None:
    array = cupy().arange(1 << 20, dtype=np.int32)
    first, second = int(array.data.ptr), int(array.data.ptr) + (1 << 21)
    copy_runs(first, second, 2, 1 << 20, 1 << 20, 1 << 20, exchange=True)
    copy_runs(np.array([first]), second, 2, 0, 0, 0)  # nothing
    copy_runs(np.zeros(0, np.int64), 0, 1, 2, 0, 0)
    expected = np.roll(np.arange(1 << 20), 1 << 19)
    np.testing.assert_array_equal(array.get(), expected)
