"""Statistics of several workers add up."""

from __future__ import annotations

from typing import Any

from ox.serve.workers.total import total


def entry(name: str, count: int, last: int, sizes: dict[int, int]) -> dict[str, Any]:
    return {
        "name": name,
        "version": "1",
        "last_inference": last,
        "inference_count": count,
        "inference_stats": {"success": {"count": count, "ns": 10 * count}},
        "batch_stats": [{"batch_size": size, "compute_infer": {"count": n, "ns": n}} for size, n in sizes.items()],
    }


def test_total() -> None:
    one = {"model_stats": [entry("a", 3, 50, {1: 1, 2: 1}), entry("only here", 1, 7, {1: 1})]}
    other = {"model_stats": [entry("a", 4, 40, {8: 2, 2: 5})]}
    first, second = total([one, other])["model_stats"]
    assert first == entry("a", 7, 50, {1: 1, 2: 6, 8: 2})
    assert second == entry("only here", 1, 7, {1: 1})
    assert total([one]) == one
