"""Merges the snapshots of several workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ox.serve.telemetry.snapshot import Snapshot

LATEST, EARLIEST = ("last_ms",), ("start_s",)
SAME = ("bounds", "gpus", "info")  # every worker sees the same


def merge(snapshots: Sequence[Snapshot]) -> Snapshot:
    """One snapshot of all: numbers are added, also those in lists; texts come from the first."""
    merged: Snapshot = {}
    for snapshot in snapshots:
        merged = _merged(merged, snapshot)
    return merged


def _merged(one: Snapshot, other: Snapshot) -> Snapshot:
    result = dict(one)
    for name, value in other.items():
        result[name] = _both(name, one[name], value) if name in one else value
    return result


def _both(name: str, one: Any, other: Any) -> Any:
    if name in SAME or isinstance(one, str):
        return one
    if name in LATEST:
        return max(one, other)
    if name in EARLIEST:
        return min(one, other)
    if isinstance(one, dict):
        return _merged(one, other)
    if isinstance(one, list):
        return [first + second for first, second in zip(one, other, strict=True)]
    return one + other
