"""How many replicas the queues ask for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("depths", "replicas"),
    [({}, 1), ({"a": 0.0}, 1), ({"a": 7.5, "b": 0.5}, 1), ({"a": 8.0, "b": 1.0}, 2), ({"a": 40.0}, 5)],
)
def test_one_for_every_eight_waiting_requests(depths: dict[str, float], replicas: int) -> None:
    pytest.importorskip("ray.serve", reason='Ray is not installed: pip install "ox-onnx[ray]"')
    from ox.ray.serving import METRIC, replicas_for

    context: Any = SimpleNamespace(aggregated_metrics={METRIC: depths}, capacity_adjusted_min_replicas=1)
    assert replicas_for(context) == (replicas, {})
