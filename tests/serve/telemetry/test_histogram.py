"""Counts by size."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
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


def test_values_are_sorted_in_when_they_are_read() -> None:
    values = [*np.random.default_rng(0).uniform(0, 5, 1000).tolist(), *SECONDS]
    histogram, expected = Histogram(SECONDS), [0] * (len(SECONDS) + 1)
    for number, value in enumerate(values):
        histogram.observe(value)
        expected[bisect_left(SECONDS, value)] += 1
        if number % 100 == 0:
            assert histogram.counts == expected and not histogram.pending
    assert histogram.total == pytest.approx(sum(values), rel=1e-12)
    assert histogram.counts == expected and histogram.count == len(values)
