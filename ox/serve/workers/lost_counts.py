"""Counters of workers that have ended or do not respond: counters never fall, gauges end with their process."""

from __future__ import annotations

from collections.abc import Iterable

from ox.serve.telemetry.merge import merge
from ox.serve.telemetry.snapshot import Snapshot

# values of the moment or of a living process
GAUGES = {
    "": ("workers", "gpus"),
    "server": ("connections", "buffered", "answers"),
    "process": ("resident", "virtual", "files", "most_files", "start_s"),
    "model": ("info", "depth", "sequences", "states"),
}


def counters(figures: Snapshot) -> Snapshot:
    """A worker's figures without its gauges."""
    models = {
        name: {version: _without("model", entry) for version, entry in versions.items()}
        for name, versions in figures["models"].items()
    }
    parts = {part: _without(part, figures[part]) for part in ("server", "process")}
    return {**_without("", figures), **parts, "models": models}


def with_lost(living: Iterable[Snapshot], lost: Iterable[Snapshot]) -> Snapshot:
    """The merged snapshot of all workers.

    Args:
        living: of workers that answer; at least one.
        lost: `counters` of others. Models that no worker serves are left out, as in one process.
    """
    whole = merge(list(living))
    served = {name: set(versions) for name, versions in whole["models"].items()}
    for figures in lost:
        models = {
            name: {version: entry for version, entry in versions.items() if version in served[name]}
            for name, versions in figures["models"].items()
            if name in served
        }
        whole = merge([whole, {**figures, "models": models}])
    return whole


def _without(part: str, figures: Snapshot) -> Snapshot:
    return {name: value for name, value in figures.items() if name not in GAUGES[part]}
