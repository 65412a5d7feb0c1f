"""Samples of Prometheus's metric families."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client.core import HistogramMetricFamily

from ox.serve.telemetry.histogram import buckets
from ox.serve.telemetry.snapshot import Snapshot


def add_histogram(
    family: HistogramMetricFamily, labels: Sequence[str], bounds: Sequence[float], counted: Snapshot
) -> None:
    """Adds a histogram of a snapshot, unless it has counted nothing: a model without requests would have 130 series.

    Args:
        family: gets its samples.
        labels: the values of the family's labels.
        bounds: of its buckets.
        counted: `counts` and `total`.
    """
    if any(counted["counts"]):
        family.add_metric(labels, buckets(bounds, counted["counts"]), counted["total"])
