"""When a change on disk is taken up."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from waiting import give_way

from ox.clock import SYSTEM
from ox.errors import LoadError
from ox.serve import ModelConfig, RequestLimits
from ox.serve.repository.layout import Layout
from ox.serve.repository.model import Model
from ox.serve.repository.model_manager import ModelManager
from ox.serve.repository.repository import Repository
from ox.serve.runtime.source import Source


def model_manager(path: Path) -> ModelManager:
    """One that looks when it is told to, and takes a file for old after a thousand seconds."""
    made = ModelManager(
        Repository(),
        Layout([path]),
        ModelConfig("cpu", instances=1),
        RequestLimits(poll_s=500),
        watch=False,
        clock=SYSTEM,
    )
    made.open()
    return made


def look(watcher: ModelManager) -> int:
    """One look at the disk; how much was begun because of it."""
    watcher._on_scan(watcher.layout.scan())
    return len(watcher._steps._tasks)


async def rest(watcher: ModelManager) -> None:
    while tasks := watcher._steps._tasks:
        await asyncio.wait(tasks)


def test_what_has_just_been_written_rests_for_a_look(make: Any, tmp_path: Path) -> None:
    path = make(tmp_path / "m.onnx", 1)

    async def main() -> None:
        watcher = model_manager(path)
        watcher.start()
        assert look(watcher) == look(watcher) == 0
        make(path, 2)
        assert look(watcher) == 0
        make(path, 3)
        assert look(watcher) == 0  # it has changed again
        assert look(watcher) == 1
        await rest(watcher)
        assert watcher.loads["m", "loaded"] == 2 and look(watcher) == 0
        path.unlink()
        assert look(watcher) == 0 and look(watcher) == 1  # nor is anything gone before it stays away
        await rest(watcher)
        assert watcher.loads["m", "unloaded"] == 1
        watcher.stop()

    asyncio.run(main())


def test_what_is_old_is_taken_at_once(make: Any, tmp_path: Path) -> None:
    path = make(tmp_path / "m.onnx", 1)

    async def main() -> None:
        watcher = model_manager(path)
        watcher.start()
        for when, begun in ((1e9, 1), (4e9, 0)):  # the clock may have been wrong: what comes from the future rests
            os.utime(make(tmp_path / "new.onnx", 2), (when, when))
            os.replace(tmp_path / "new.onnx", path)
            assert look(watcher) == begun
            await rest(watcher)
        assert look(watcher) == 1
        await rest(watcher)
        assert watcher.loads["m", "loaded"] == 3
        watcher.stop()

    asyncio.run(main())


def test_looks_do_not_pile_up(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path / "m.onnx", 1)

    async def main() -> None:
        watcher = model_manager(path)
        watcher.start()
        go, real = threading.Event(), Model.__init__

        def slow(*arguments: Any, **named: Any) -> None:
            go.wait(120)
            real(*arguments, **named)

        monkeypatch.setattr(Model, "__init__", slow)
        make(path, 2)
        look(watcher)
        for _ in range(5):
            assert look(watcher) == 1
            await give_way()
        go.set()
        await rest(watcher)
        assert watcher.loads["m", "loaded"] == 2
        watcher.stop()

    asyncio.run(main())


def test_what_changes_while_it_is_read(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read is thrown away, right or wrong, and looked at again."""
    path = make(tmp_path / "m.onnx", 1)
    real = Model.__init__

    async def main() -> None:
        watcher = model_manager(path)
        watcher.start()
        before = watcher.repository.models()

        def disturbed(*arguments: Any, **named: Any) -> None:
            path.write_bytes(b"half")
            real(*arguments, **named)

        def late(*arguments: Any, **named: Any) -> None:
            real(*arguments, **named)
            path.write_bytes(b"half")

        for changed in (disturbed, late):
            monkeypatch.setattr(Model, "__init__", changed)
            make(path, 2)
            look(watcher)
            assert look(watcher) == 1
            await rest(watcher)
            assert watcher.loads == {("m", "loaded"): 1} and watcher.repository.models() == before
        monkeypatch.setattr(Model, "__init__", real)
        make(path, 2)
        look(watcher)
        look(watcher)
        await rest(watcher)
        assert watcher.loads == {("m", "loaded"): 2} and watcher.repository.models() != before
        watcher.stop()

    asyncio.run(main())


def test_at_the_start(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is being written is an error if it was named, and left to watching in a folder."""
    make(tmp_path / "n.onnx", 1)
    path = make(tmp_path / "m.onnx", 1)
    real = Model.__init__

    def disturbed(self: Model, source: Source, *arguments: Any, **named: Any) -> None:
        real(self, source, *arguments, **named)
        file = source.path
        if file.name == "m.onnx":
            os.utime(file, (0, len(calls)))
            calls.append(file)

    calls: list[Path] = []
    monkeypatch.setattr(Model, "__init__", disturbed)
    with pytest.raises(Exception, match="still being written"):
        model_manager(path)
    watcher = model_manager(tmp_path)
    assert [model.name for model in watcher.repository.models()] == ["n"] and len(calls) == 2
    assert "still being written" in watcher.repository.entries["m"].problem


def test_a_trouble_is_said_once(make: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make(tmp_path / "m.onnx", 1)
    watcher = model_manager(tmp_path)
    for _ in range(3):
        watcher._on_scan(LoadError("the disk is away"))
    assert caplog.text.count("the disk is away") == 1
    (tmp_path / "ox.toml").write_text("[[[")
    for _ in range(3):
        look(watcher)
    assert caplog.text.count("is not TOML") == 1
    (tmp_path / "ox.toml").unlink()
    look(watcher)
    watcher._on_scan(LoadError("the disk is away"))
    assert caplog.text.count("the disk is away") == 2


def test_nothing_ends_the_watch(
    make: Any, serve: Any, tmp_path: Path, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    make(tmp_path / "m.onnx", 1)
    with serve(tmp_path) as server:
        model_manager = server.service.model_manager
        whole, looks = model_manager._watch._scan, []

        def broken() -> Any:
            looks.append(1)
            raise ZeroDivisionError(f"the {'first' if len(looks) < 5 else 'second'} defect")

        model_manager._watch._scan = broken
        eventually(lambda: len(looks) > 8)
        model_manager._watch._scan = whole
        make(tmp_path / "n.onnx", 2)
        eventually(lambda: {model.name for model in server.models} == {"m", "n"})
    for text in ("the first defect", "the second defect"):  # said once each
        assert sum(text in record.getMessage() for record in caplog.records) == 1
