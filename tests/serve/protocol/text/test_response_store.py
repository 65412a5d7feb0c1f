"""The store of earlier responses: its bounds, its owners, and processes that share it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from manual_clock import ManualClock

from ox.errors import ServeError
from ox.serve.protocol.text import response_store
from ox.serve.protocol.text.response_store import MEMORY, ResponseStore, StoredResponse


def response(size: int) -> StoredResponse:
    return StoredResponse(b"d" * size, b"", b"")


def test_the_oldest_leave_a_full_store(monkeypatch: pytest.MonkeyPatch) -> None:
    store = ResponseStore(MEMORY, 100, 60, ManualClock())

    def stored() -> str:
        return "".join(name for name in "abcdef" if store.get(name, "me"))

    assert store.put("a", "me", response(40)) and store.put("b", "me", response(60)) and stored() == "ab"
    assert store.put("c", "me", response(1)) and stored() == "bc"
    assert not store.put("d", "me", response(101)) and stored() == "bc"  # the others stay
    assert store.put("e", "me", StoredResponse(b"d" * 50, b"i" * 40, b"c" * 10)) and stored() == "e"
    assert store.get("e", "me") == StoredResponse(b"d" * 50, b"i" * 40, b"c" * 10)
    monkeypatch.setattr(response_store, "MAX_RESPONSES", 2)
    for name in "abc":
        store.put(name, "me", response(1))
    assert stored() == "bc"
    store.close()


def test_the_owner_who_has_most_makes_room() -> None:
    store = ResponseStore(MEMORY, 100, 60, ManualClock())
    names = {"a": "alice", "b": "bob", "c": "bob", "d": "bob", "e": "alice", "f": "carol"}

    def stored() -> str:
        return "".join(name for name, owner in names.items() if store.get(name, owner))

    for name, size in (("a", 20), ("b", 40), ("c", 40)):
        assert store.put(name, names[name], response(size))
    assert store.put("d", "bob", response(30)) and stored() == "acd"  # the oldest of bob, who has most
    assert store.put("e", "alice", response(20)) and stored() == "ade"
    assert not store.put("f", "carol", response(90)) and stored() == "ade"  # who would have most
    assert store.put("f", "carol", response(30)) and stored() == "adef"
    store.close()


def test_responses_expire() -> None:
    clock = ManualClock()
    store = ResponseStore(MEMORY, 100, 60, clock)
    store.put("a", "me", response(1))
    clock.advance(59)
    store.put("b", "me", response(1))
    assert store.get("a", "me") and store.get("b", "me")
    clock.advance(1)
    assert store.get("a", "me") is None and not store.delete("a", "me") and store.get("b", "me")
    assert store.put("a", "me", response(99)) and store.get("b", "me")  # the old one takes no room
    store.close()


def test_only_its_owner_finds_a_response() -> None:
    store = ResponseStore(MEMORY, 100, 60, ManualClock())
    store.put("a", "me", response(1))
    assert store.get("a", "you") is None and not store.delete("a", "you")
    assert store.delete("a", "me") and not store.delete("a", "me") and store.get("a", "me") is None
    store.close()


def test_processes_share_a_file(tmp_path: Path) -> None:
    first, second = (ResponseStore(tmp_path / "responses", 100, 60, ManualClock()) for _ in range(2))
    first.put("a", "me", response(60))
    assert second.get("a", "me") == response(60)
    second.put("b", "me", response(60))
    assert first.get("a", "me") is None and first.get("b", "me") == response(60)  # the limit is of both together
    first.close()
    second.close()


def test_a_file_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = ResponseStore(tmp_path / "responses", 100, 60, ManualClock())
    store.put("a", "me", response(1))
    with sqlite3.connect(tmp_path / "responses") as other:
        other.execute("DROP TABLE responses")
    assert not store.put("b", "me", response(1))
    assert "a response was not stored: no such table" in caplog.text
    for call in (store.get, store.delete):
        with pytest.raises(ServeError, match="cannot be read") as caught:
            call("a", "me")
        assert caught.value.status == 503
    other.close()
    store.close()
    with pytest.raises(ServeError, match="cannot be read"):
        ResponseStore(tmp_path, 100, 60, ManualClock())
