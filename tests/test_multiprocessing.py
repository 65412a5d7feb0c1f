"""`ox.multiprocessing`: the standard library's names, and `spawn`."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from pathlib import Path

import pytest

import ox.multiprocessing as mp
from ox.errors import ArgumentError, WorkerError


def write(i: int, folder: str) -> None:
    Path(folder, str(i)).write_text(str(os.getpid()))


def fail(i: int, folder: str) -> None:
    if i == 1:
        raise ValueError("the second fails")
    threading.Event().wait(60)


def leave(i: int, code: int) -> None:
    sys.exit(code)


def test_the_names_of_the_standard_library() -> None:
    assert mp.Process is multiprocessing.Process and mp.cpu_count() == multiprocessing.cpu_count()
    assert callable(mp.Queue) and callable(mp.get_context) and mp.get_sharing_strategy() == "file_system"
    mp.set_sharing_strategy("file_descriptor")


def test_spawn_calls_a_function_in_each_process(tmp_path: Path) -> None:
    assert mp.spawn(write, (str(tmp_path),), nprocs=2, start_method="fork") is None
    pids = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert set(pids) == {"0", "1"} and str(os.getpid()) not in pids.values()
    started = mp.spawn(write, (str(tmp_path),), nprocs=1, join=False, start_method="fork")
    assert started is not None and len(started.pids()) == 1
    assert started.join()


def test_nothing_is_left_to_wait_for(tmp_path: Path) -> None:
    """All have ended, and who joins has seen it."""
    started = mp.spawn(write, (str(tmp_path),), nprocs=2, join=False, start_method="fork")
    assert started is not None
    for process in started.processes:
        process.join()
    assert [process.exitcode for process in started.processes] == [0, 0]
    assert started.join(60) and started.join()


def test_a_process_that_fails_ends_the_others(tmp_path: Path) -> None:
    before = mp.active_children()  # what tests before this one have left to the garbage collector
    with pytest.raises(WorkerError, match=r"process 1 of ox\.multiprocessing\.spawn failed[\s\S]*the second fails"):
        mp.spawn(fail, (str(tmp_path),), nprocs=2, start_method="fork")
    assert set(mp.active_children()) <= set(before), "the first one waits for a minute"
    with pytest.raises(mp.ProcessRaisedException, match="exit code 3"):
        mp.spawn(leave, (3,), start_method="fork")


@pytest.mark.parametrize("count", [0, -1, "2"])
def test_a_wrong_number_of_processes(count: object) -> None:
    with pytest.raises(ArgumentError, match="a positive number of processes"):
        mp.spawn(write, ("",), nprocs=count)  # type: ignore[arg-type]
