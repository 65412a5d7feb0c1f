"""The statistics of several workers as those of one server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def total(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One answer of the call `statistics` from those of all workers: counts and times are added."""
    models: dict[tuple[str, str], dict[str, Any]] = {}
    for answer in answers:
        for entry in answer["model_stats"]:
            key = entry["name"], entry["version"]
            models[key] = _both(models[key], entry) if key in models else entry
    return {"model_stats": list(models.values())}


def _both(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    sizes = {entry["batch_size"]: entry for entry in one["batch_stats"]}
    for entry in other["batch_stats"]:
        size = entry["batch_size"]
        sizes[size] = {**_sum(sizes[size], entry), "batch_size": size} if size in sizes else entry
    return {
        **_sum(one, other),
        "last_inference": max(one["last_inference"], other["last_inference"]),
        "batch_stats": [entry for _, entry in sorted(sizes.items())],
    }


def _sum(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Numbers are added, at every depth; the rest is alike."""
    added = {}
    for name, value in one.items():
        if isinstance(value, dict):
            added[name] = _sum(value, other[name])
        else:
            added[name] = value + other[name] if isinstance(value, int) else value
    return added
