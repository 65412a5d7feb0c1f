"""Percentiles to 0.1 %, extremes exactly, whoever measured what."""

from __future__ import annotations

import json
import math
from array import array

import numpy as np
import pytest
from rows import rows

from ox.bench.histogram import Histogram


@rows("percent", [1, 50, 90, 99, 99.9, 100])
def test_percentiles(percent: float) -> None:
    times = np.random.default_rng(0).lognormal(-7, 2, 20_011)
    whole, halves = Histogram(), [Histogram(), Histogram()]
    whole.add(array("d", times))
    for place, half in enumerate(halves):
        half.add(array("d", times[place::2]))
    halves[0].merge(Histogram.from_json(json.loads(json.dumps(halves[1].to_json()))))
    exact = np.percentile(np.maximum(times, 1e-6), percent, method="inverted_cdf")
    for histogram in (whole, halves[0]):
        assert histogram.percentile(percent) == pytest.approx(exact, rel=1.1e-3)
        assert histogram.count == 20_011 and histogram.mean == pytest.approx(times.mean())
        assert histogram.largest == times.max()


def test_extremes() -> None:
    histogram = Histogram()
    assert math.isnan(histogram.percentile(50)) and math.isnan(histogram.mean)
    histogram.add(array("d", [0.0, 1e9]))
    assert histogram.percentile(50) < 2e-6 and histogram.count == 2 and histogram.largest == 1e9
