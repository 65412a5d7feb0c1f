"""Counts by size."""

from __future__ import annotations

import pytest

from ox.serve.telemetry.histogram import ROWS, SECONDS, Histogram, buckets


def test_a_bound_belongs_to_its_own_bucket() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 3.0):
        histogram.observe(value)
    assert (histogram.counts, histogram.count, histogram.total) == ([2, 2, 1], 5, 8.0)
    assert buckets(histogram.bounds, histogram.counts) == [("1.0", 2.0), ("2.0", 4.0), ("+Inf", 5.0)]


@pytest.mark.parametrize("bounds", [SECONDS, ROWS])
def test_bounds_rise(bounds: tuple[float, ...]) -> None:
    assert list(bounds) == sorted(set(bounds))
