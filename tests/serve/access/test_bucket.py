"""Rates: so many at once, so many in the long run."""

from __future__ import annotations

import pytest

from ox.serve.access.bucket import Bucket


def test_burst_then_rate() -> None:
    bucket = Bucket(10.0, 3, 100.0)
    assert [bucket.take(100.0) for _ in range(4)] == [0, 0, 0, pytest.approx(0.1)]
    assert bucket.take(100.05) == pytest.approx(0.05)  # being refused costs nothing
    assert bucket.take(100.1001) == 0
    assert bucket.take(100.1001) > 0


def test_never_more_than_the_burst() -> None:
    bucket = Bucket(10.0, 3, 0.0)
    assert [bucket.take(1e6) == 0 for _ in range(4)] == [True, True, True, False]


def test_in_the_long_run() -> None:
    bucket, passed = Bucket(50.0, 5, 0.0), 0
    for step in range(10_000):  # ten seconds
        passed += bucket.take(step / 1000) == 0
    assert 503 <= passed <= 505
