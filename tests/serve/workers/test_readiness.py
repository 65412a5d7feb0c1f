"""What is ready in every worker."""

from __future__ import annotations

from typing import Any

from ox.serve.workers.readiness import Readiness

NOTHING: dict[str, Any] = {"ready": False, "routes": []}


def state(ready: bool, *names: str) -> dict[str, Any]:
    return {"ready": ready, "routes": [[name, ""] for name in names]}


def test_nothing_is_ready_until_every_worker_has_reported() -> None:
    readiness = Readiness(2)
    assert readiness.common() == NOTHING
    readiness.update(0, state(True, "a"))
    assert readiness.common() == NOTHING
    readiness.update(1, state(False, "b"))
    assert readiness.common() == NOTHING
    readiness.update(1, state(False, "b", "a"))
    assert readiness.common() == state(False, "a")
    readiness.update(1, state(True, "b", "a"))
    assert readiness.common() == state(True, "a")


def test_a_worker_that_has_ended_counts_no_more() -> None:
    readiness = Readiness(2)
    readiness.update(0, state(True, "a", "b"))
    readiness.update(1, state(True, "a"))
    readiness.remove(1)
    assert readiness.common() == state(True, "a", "b")
    readiness.update(1, state(False))  # its successor
    assert readiness.common() == NOTHING
    readiness.remove(1)
    readiness.remove(0)
    assert readiness.common() == NOTHING
