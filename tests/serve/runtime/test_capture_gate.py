"""Nothing uses a GPU during a capture."""

from __future__ import annotations

import gc
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from rows import rows

from ox.errors import LoadError
from ox.serve.runtime import capture_gate
from ox.serve.runtime.capture_gate import CaptureGate


class Noted(threading.Condition):
    """Counts those that begin to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = threading.Semaphore(0)

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        if not predicate():
            self.waiting.release()
        return super().wait_for(predicate, timeout)


def test_a_capture_waits_for_those_that_use_a_gpu_and_they_for_it() -> None:
    gate, order = CaptureGate(), list[str]()
    gate._changed = changed = Noted()

    def run(block: Callable[[], Any], name: str) -> None:
        with block():
            order.append(name)

    with ThreadPoolExecutor(3) as pool:
        with gate.using():
            pool.submit(run, gate.using, "others use it, too").result()
            parts = [pool.submit(run, gate.capturing, "capture")]
            assert changed.waiting.acquire(timeout=60)
            parts += [pool.submit(run, gate.using, "use"), pool.submit(run, gate.capturing, "capture")]
            assert changed.waiting.acquire(timeout=60) and changed.waiting.acquire(timeout=60)
            assert order == ["others use it, too"]
        for part in parts:
            part.result()
    assert order[1] == "capture" and sorted(order[2:]) == ["capture", "use"]


@rows("outer", ["using", "loading"])
def test_a_block_inside_of_another_waits_for_no_capture(outer: str) -> None:
    gate, order = CaptureGate(), list[str]()
    gate._changed = changed = Noted()

    def capture() -> None:
        with gate.capturing():
            order.append("capture")

    with ThreadPoolExecutor(1) as pool:
        with getattr(gate, outer)():
            part = pool.submit(capture)
            assert changed.waiting.acquire(timeout=60)
            with gate.using():
                order.append("inner")
            order.append("outer")
        part.result()
    assert order == ["inner", "outer", "capture"] and not gate._users


def test_a_run_that_does_not_end_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_gate, "MOST_S", 0.0)
    gate = CaptureGate()
    with gate.using():
        with pytest.raises(LoadError, match=r"(?s)no CUDA graph can be captured.*does not end"), gate.capturing():
            raise AssertionError("it captures")
        with gate.using():
            pass
    with gate.capturing():
        pass


def test_an_error_opens_it_again() -> None:
    gate = CaptureGate()
    for block in (gate.using, gate.loading, gate.capturing):
        with pytest.raises(ValueError, match="of the run"), block():
            raise ValueError("of the run")
    with gate.capturing():
        assert gate._capturing and not gate._users and not gate._loads


class Thing:
    """Something with attributes and weak references."""


def owned(gate: CaptureGate, ended: list[str], users: list[int]) -> tuple[Thing, Thing]:
    """An owner and its resource, which tells when it and what it uses end."""
    owner, resource, used = Thing(), Thing(), Thing()
    owner.resource = resource  # type: ignore[attr-defined]
    gate.end_with(owner, resource, used)
    for thing, name in ((resource, "resource"), (used, "used")):
        weakref.finalize(thing, lambda name=name: (ended.append(name), users.append(gate._users)))
    return owner, resource


def test_what_ends_by_itself_ends_at_once() -> None:
    gate, ended, users = CaptureGate(), list[str](), list[int]()
    owner, resource = owned(gate, ended, users)
    del resource, owner
    assert ended == ["resource", "used"] and users[0] == 1 and not gate._users  # no capture meanwhile


@pytest.mark.parametrize("block", ["using", "loading", "capturing"])
def test_what_the_garbage_collector_ends_during_a_capture_ends_after_it(block: str) -> None:
    gate, ended = CaptureGate(), list[str]()
    owner, resource = owned(gate, ended, [])
    owner.me = owner  # type: ignore[attr-defined]
    del resource, owner
    with gate.capturing():
        gc.collect()
        assert not ended
    assert ended == ["resource", "used"]
    owner, resource = owned(gate, ended, [])
    del owner  # the resource is still used
    with getattr(gate, block)():
        assert len(ended) == 2
    assert len(ended) == 2
    del resource
    with getattr(gate, block)():
        pass
    assert len(ended) == 4


def test_the_garbage_collector_may_come_while_the_lock_is_held() -> None:
    gate, ended = CaptureGate(), list[str]()
    owner, resource = owned(gate, ended, [])
    owner.me = owner  # type: ignore[attr-defined]
    del resource, owner
    with gate._changed:
        gc.collect()
    gate.end_pending()
    assert ended == ["resource", "used"] and not gate._users


@pytest.mark.parametrize("looks", [2, 3])
def test_another_thread_may_end_the_last_one(looks: int) -> None:
    class Shared(deque[list[Any]]):
        """Another thread takes all that there is when this one has looked so often."""

        looked = 0

        def __len__(self) -> int:
            size, self.looked = super().__len__(), self.looked + 1
            if self.looked == looks:
                self.clear()
            return size

        def __bool__(self) -> bool:
            return len(self) > 0

    gate, ended = CaptureGate(), list[str]()
    owner, resource = owned(gate, ended, [])
    del owner  # the resource is still used
    gate._ending = Shared(gate._ending)
    with gate.using():
        pass
    assert not gate._users and not ended
    del resource
    with gate.using():
        pass
    assert ended == ["resource", "used"]
