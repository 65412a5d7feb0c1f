"""Temporary files and folders: what a killed process left goes, what a living one writes stays."""

from __future__ import annotations

import fcntl
import os
import random
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from waiting import wait_until

import ox
from ox import temporary_files
from ox.serialization.files import write_whole


def forked(work: Callable[[], object]) -> int:
    """A process that does `work` and waits to be killed."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            signal.pause()
        finally:
            os._exit(1)
    return pid


def killed(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def hold(path: Path) -> None:
    with temporary_files.file_beside(path) as held:
        held.write_bytes(b"half")
        signal.pause()


def hold_folder(parent: Path) -> None:
    with temporary_files.folder("ox-test-", parent) as held:
        (held / "part").mkdir()
        (held / "part" / "file").write_bytes(b"half")
        signal.pause()


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_only_what_nobody_writes_is_removed(tmp_path: Path, kind: str) -> None:
    work = (lambda: hold(tmp_path / "x")) if kind == "file" else (lambda: hold_folder(tmp_path))
    names = temporary_files.ANY if kind == "file" else temporary_files.re.compile("ox-test-.*")
    pid = forked(work)
    try:
        wait_until(lambda: [p for p in tmp_path.rglob("*") if p.is_file() and p.stat().st_size])
        temporary_files.remove_abandoned(tmp_path, names)
        assert len(os.listdir(tmp_path)) == 1
    finally:
        killed(pid)
    temporary_files.remove_abandoned(tmp_path, names)
    assert not os.listdir(tmp_path)


def test_the_next_of_its_kind_removes_it(tmp_path: Path) -> None:
    for work in (lambda: hold(tmp_path / "x [1]"), lambda: hold_folder(tmp_path)):
        pid = forked(work)
        wait_until(lambda: [p for p in tmp_path.rglob("*") if p.is_file() and p.stat().st_size])
        killed(pid)
        ox.save(1, tmp_path / "y")  # another file's, which is not looked for
        left = len(os.listdir(tmp_path))
        ox.save(1, tmp_path / "x [1]")
        with temporary_files.folder("ox-test-", tmp_path):
            pass
        assert left == 2
        assert sorted(os.listdir(tmp_path)) == ["x [1]", "y"]
        for name in os.listdir(tmp_path):
            (tmp_path / name).unlink()


def test_a_worker_that_outlives_its_parent_holds_nothing(tmp_path: Path) -> None:
    worker = tmp_path / "worker"

    def with_a_worker() -> None:
        with temporary_files.file_beside(tmp_path / "x"):
            pid = os.fork()
            if pid:
                ox.save(pid, worker)
            signal.pause()

    pid = forked(with_a_worker)
    wait_until(worker.is_file)
    killed(pid)
    try:
        temporary_files.remove_abandoned(tmp_path)
        assert os.listdir(tmp_path) == ["worker"]
    finally:
        os.kill(ox.load(worker), signal.SIGKILL)


def test_nobody_locks_what_is_being_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its maker, who may be about to lock it, must see that it goes."""
    file, folder = tmp_path / ".x.01234567.tmp", tmp_path / ".y.89abcdef.tmp"
    file.touch()
    folder.mkdir()
    (folder / temporary_files.LOCK).touch()
    seen = []

    def locked(path: Path) -> None:
        handle = os.open(path, os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(handle)
        seen.append(path.name)

    monkeypatch.setattr(Path, "unlink", locked)
    monkeypatch.setattr(temporary_files.shutil, "rmtree", lambda path: locked(path / temporary_files.LOCK))
    temporary_files.remove_abandoned(tmp_path)
    assert set(seen) == {file.name, temporary_files.LOCK}


@pytest.mark.parametrize("removed", [False, True], ids=["still there", "gone"])
def test_a_new_folder_that_another_process_removes_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removed: bool
) -> None:
    """Between its making and its lock."""
    lock, first = temporary_files.lock, []

    def taken(handle: int) -> bool | None:
        if first:
            return lock(handle)
        first.extend(tmp_path.iterdir())
        if removed:
            temporary_files.shutil.rmtree(first[0])
            return lock(handle)
        return False

    monkeypatch.setattr(temporary_files, "lock", taken)
    with temporary_files.folder("ox-test-", tmp_path) as made:
        assert first and made.is_dir() and made != first[0]


def test_a_disk_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There a file is left behind when it has not changed for an hour."""

    def none(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    old, new = tmp_path / ".x.01234567.tmp", tmp_path / ".x.89abcdef.tmp"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 4000,) * 2)
    ox.save(1, tmp_path / "x")
    assert sorted(os.listdir(tmp_path)) == [new.name, "x"]


def test_other_files_stay(tmp_path: Path) -> None:
    names = [".x.tmp", "x.01234567.tmp", ".x.0123456.tmp", ".x.01234567.tmp~", ".x.0123456G.tmp", ".01234567.tmp"]
    for name in names:
        (tmp_path / name).touch()
    os.mkfifo(tmp_path / ".x.01234567.tmp")
    (tmp_path / ".y.01234567.tmp").symlink_to(tmp_path / ".x.tmp")
    temporary_files.remove_abandoned(tmp_path)
    ox.save(1, tmp_path / "x")
    assert sorted(os.listdir(tmp_path)) == sorted([*names, "x", ".x.01234567.tmp", ".y.01234567.tmp"])


def saves(path: Path, small: bool, started: int | None = None) -> Callable[[], None]:
    """`started`: a file to write a byte to after the first save, which is slow in the fork of a large process."""
    state = {"w": np.zeros(8 if small else 400_000), "step": 1}

    def again_and_again() -> None:
        ox.save(state, path)
        if started is not None:
            os.write(started, b"1")
        while True:
            ox.save(state, path)

    return again_and_again


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("small", [True, False])
def test_killed_at_any_moment(tmp_path: Path, small: bool) -> None:
    """SIGKILL while a file is written, again and again: the next one leaves what one that was left in peace leaves."""
    clean, path, chance, torn = tmp_path / "clean", tmp_path / "killed" / "x", random.Random(3), 0
    for folder in (clean, path.parent):
        folder.mkdir()
    ox.save({"w": np.zeros(8 if small else 400_000), "step": 1}, clean / "x")
    read, write = os.pipe()
    for _ in range(40):
        pid = forked(saves(path, small, write))
        wait_until(lambda: select.select([read], [], [], 0.0)[0])
        os.read(read, 1)
        time.sleep(chance.uniform(0.0, 0.02))  # noqa: TID251  # a kill comes at any moment
        killed(pid)
        torn += len(os.listdir(path.parent)) > path.is_file()
        assert len(os.listdir(path.parent)) <= 2, "what the one before left was not removed"
    os.close(read)
    os.close(write)
    assert torn
    ox.save({"w": np.zeros(8 if small else 400_000), "step": 1}, path)
    assert {p.name: p.read_bytes() for p in path.parent.iterdir()} == {"x": (clean / "x").read_bytes()}


def test_two_that_write_one_file(tmp_path: Path) -> None:
    """Neither takes away what the other writes; the file is always one of theirs, whole."""
    pids = [forked(saves(tmp_path / "x", small=True)) for _ in range(2)]
    try:
        writes = set()
        while len(writes) < 200:  # different files of this name
            assert all(os.waitpid(pid, os.WNOHANG) == (0, 0) for pid in pids), "a save failed"
            if (tmp_path / "x").is_file():
                assert ox.load(tmp_path / "x")["step"] == 1
                writes.add((tmp_path / "x").stat().st_mtime_ns)
    finally:
        for pid in pids:
            killed(pid)
    write_whole(tmp_path / "x", lambda path: path.write_bytes(b"whole"))
    assert os.listdir(tmp_path) == ["x"]
