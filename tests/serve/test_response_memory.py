"""What counts the memory of answers: nothing is forgotten, nobody waits for ever."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from ox.clock import SYSTEM
from ox.serve.response_memory import LARGE, TINY, Buffers, MemoryRequest, ResponseMemory, buffer_of, memory_of

MIB = 1 << 20


def array(mib: float) -> Any:
    return np.zeros(int(mib * MIB), np.uint8)


def keep(memory: ResponseMemory, mib: float, promised: int = 0) -> Any:
    return memory.track([array(mib)], promised)[0]


def acquire(memory: ResponseMemory, least: int, most: int = 0, wait: bool = True) -> int:
    grant = memory.acquire(lambda: MemoryRequest(1, least, most or least, wait))
    assert grant is not None
    return grant.size


class ToldMemory(ResponseMemory):
    """Tells of the runs that wait."""

    def __init__(self, limit: int) -> None:
        self.news = threading.Condition()
        super().__init__(limit, SYSTEM)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in ("waiting_since", "_waiters"):
            with self.news:
                self.news.notify_all()


def waiting(memory: ToldMemory) -> None:
    """Until a run waits for memory."""
    with memory.news:
        assert memory.news.wait_for(lambda: memory.waiting_since is not None, 120)


def standing(memory: ToldMemory, number: int) -> None:
    """Until so many runs wait, for memory or for their turn."""
    with memory.news:
        assert memory.news.wait_for(lambda: len(memory._waiters) >= number, 120)


def test_an_array_counts_as_long_as_it_lives() -> None:
    memory = ToldMemory(10 * MIB)
    kept = keep(memory, 2)
    part = buffer_of(kept)[MIB:]
    del kept
    assert memory.used == 2 * MIB  # a part of it holds all of it
    del part
    assert memory.used == 0 and memory.peak == 2 * MIB


def test_what_is_part_of_something_else_is_copied() -> None:
    memory = ToldMemory(10 * MIB)
    whole = np.random.default_rng(1).integers(0, 256, (2, 2 * MIB), np.uint8)
    assert memory.track([whole])[0] is whole
    row = memory.track([whole[1:]])[0]
    assert row.base is None and np.array_equal(row, whole[1:]) and memory.used == 6 * MIB
    turned = memory.track([np.asfortranarray(whole)])[0]
    assert turned.flags.c_contiguous and np.array_equal(turned, whole)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.bool_, "ml_dtypes"])
def test_bytes_of_an_array(dtype: Any) -> None:
    if dtype == "ml_dtypes":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    values = np.arange(6).reshape(2, 3).astype(dtype)
    assert buffer_of(values).tobytes() == values.tobytes() and len(buffer_of(values)) == values.nbytes


def test_strings_count() -> None:
    memory = ToldMemory(10 * MIB)
    words = np.array([["a" * MIB], ["b" * MIB]], object)
    assert 2 * MIB < memory_of([words]) < 2 * MIB + 200
    kept = memory.track([words[1:]])
    assert MIB < memory.used < MIB + 200 and kept[0].tolist() == [["b" * MIB]]
    del kept
    assert memory.used == 0


def test_a_copy_for_which_there_is_no_memory_counts_nothing() -> None:
    class Full(np.ndarray[Any, Any]):
        def copy(self, order: Any = "C") -> Any:
            raise MemoryError

    memory = ToldMemory(10 * MIB)
    part = np.zeros((2, MIB), np.uint8)[1:].view(Full)
    for _ in range(3):
        with pytest.raises(MemoryError):
            memory.track([array(2), part])
        assert memory.used == 0


def test_text_counts_as_long_as_it_lives() -> None:
    memory = ToldMemory(10 * MIB)
    kept = keep(memory, 1)
    body = memory.track_body(Buffers([b"head", bytes(TINY), buffer_of(kept)]))
    assert len(body) == 4 + TINY + MIB and body.join()[:4] == b"head"
    assert memory.used == MIB + TINY  # the array is not counted twice
    text = memory.track_body(bytes(LARGE))
    assert memory.used == MIB + TINY + LARGE and len(text) == LARGE
    del body, kept, text
    assert memory.used == 0


def test_a_run_waits_until_there_is_room() -> None:
    memory = ToldMemory(10 * MIB)
    kept = [keep(memory, 4), keep(memory, 4)]
    assert acquire(memory, MIB, 5 * MIB) == 2 * MIB  # as much as there is
    memory.release(2 * MIB)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(acquire, memory, 3 * MIB)
        waiting(memory)
        assert not run.done() and acquire(memory, 3 * MIB, wait=False) == 0
        kept.pop()
        assert run.result(120) == 3 * MIB
    assert memory.wait_count == 1 and memory.wait_s > 0 and memory.waiting_since is None
    memory.release(3 * MIB)
    kept.clear()
    assert memory.used == 0


def test_unread_small_answers_take_room_and_give_it_back() -> None:
    memory = ToldMemory(10 * MIB)
    kept = keep(memory, 4)
    memory.add_unread(5 * MIB)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(acquire, memory, 2 * MIB)
        waiting(memory)
        memory.add_unread(-5 * MIB)
        assert run.result(120) == 2 * MIB
    del kept


def test_more_than_all_of_it_passes_alone() -> None:
    memory = ToldMemory(10 * MIB)
    assert acquire(memory, 30 * MIB) == 30 * MIB
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(acquire, memory, 30 * MIB)
        waiting(memory)
        assert not run.done()
        memory.release(30 * MIB)
        assert run.result(120) == 30 * MIB


def test_a_run_that_is_no_longer_wanted_waits_no_longer() -> None:
    """Nor do those that stand behind it: it may need more than they do."""
    memory, wanted = ToldMemory(10 * MIB), [True, True]
    kept = keep(memory, 6)

    def ask(place: int) -> MemoryRequest | None:
        return MemoryRequest(1, 8 * MIB, 8 * MIB) if wanted[place] else None

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(memory.acquire, lambda: ask(0))
        waiting(memory)
        second = pool.submit(memory.acquire, lambda: ask(1))
        standing(memory, 2)
        third = pool.submit(acquire, memory, 4 * MIB)
        standing(memory, 3)
        wanted[1] = False
        memory.wake_all()
        assert second.result(120) is None and not first.done() and not third.done()
        wanted[0] = False
        memory.wake_all()
        assert first.result(120) is None and third.result(120) == 4 * MIB
    assert memory.waiting_since is None and memory.wait_count == 1 and memory.used == 10 * MIB
    del kept


def test_a_run_that_needs_less_gets_it() -> None:
    memory, needs = ToldMemory(10 * MIB), [8 * MIB]
    kept = keep(memory, 6)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(memory.acquire, lambda: MemoryRequest(1, needs[0], needs[0]))
        waiting(memory)
        needs[0] = 4 * MIB
        memory.wake_all()
        grant = run.result(120)
    assert grant is not None and grant.size == grant.request.min_bytes == 4 * MIB
    del kept


def test_runs_of_many_threads() -> None:
    memory, most = ToldMemory(10 * MIB), []

    def work() -> None:
        for _ in range(50):
            granted = acquire(memory, 3 * MIB)
            kept = keep(memory, 3, granted)
            most.append(memory.used)
            del kept

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(most) == 300 and memory.used == 0
    assert max(most) <= 10 * MIB and memory.peak <= 10 * MIB


def test_an_array_may_be_freed_in_the_middle_of_counting() -> None:
    """A collection comes when it likes, also while this thread holds the lock."""
    memory = ToldMemory(10 * MIB)

    class Knot:
        def __init__(self) -> None:
            self.me, self.array = self, keep(memory, 1)

    Knot()
    assert memory.used == MIB
    with memory._lock:
        gc.collect()
    assert memory.used == 0


def test_who_is_told_that_nothing_is_left() -> None:
    memory, told = ToldMemory(10 * MIB), []
    memory.on_empty = lambda: told.append(memory.peak)
    first, second = keep(memory, 1), keep(memory, 2)
    del first
    assert not told
    del second
    assert told == [3 * MIB]
