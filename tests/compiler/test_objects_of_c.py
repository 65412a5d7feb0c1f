"""State that objects of C and of Python's library hold: a call that changes it stays eager, or is guarded on it."""

from __future__ import annotations

import csv
import ctypes
import io
import multiprocessing
import queue
import re
import sqlite3
import threading
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from beside_eager import reasons, recordings

import ox

ONE = ox.ones(1)


def put_into_queue() -> Any:
    kept: queue.SimpleQueue[int] = queue.SimpleQueue()
    return lambda: kept.put(1), kept.qsize


def write_rows() -> Any:
    text = io.StringIO()
    writer = csv.writer(text)
    return lambda: writer.writerow(["step", 1]), lambda: len(text.getvalue().splitlines())


def insert() -> Any:
    data = sqlite3.connect(":memory:")
    data.execute("create table t(a)")
    count = "select count(*) from t"
    return lambda: data.execute("insert into t values(1)"), lambda: data.execute(count).fetchone()[0]


def write_text() -> Any:
    kept = io.StringIO()
    return lambda: kept.write("1"), lambda: len(kept.getvalue())


def count_for_processes() -> Any:
    number = multiprocessing.Value("i", 0)

    def add() -> None:
        number.value += 1

    return add, lambda: number.value


def count_in_c() -> Any:
    number = ctypes.c_int(0)

    def add() -> None:
        number.value += 1

    return add, lambda: number.value


def count_in_memory() -> Any:
    memory = memoryview(bytearray(4))

    def add() -> None:
        memory[0] += 1

    return add, lambda: memory[0]


def take_semaphore() -> Any:
    free = threading.Semaphore(10)
    return free.acquire, lambda: 10 - free._value


CHANGING = [
    put_into_queue,
    write_rows,
    insert,
    write_text,
    count_for_processes,
    count_in_c,
    count_in_memory,
    take_semaphore,
]


@pytest.mark.parametrize("make", CHANGING)
def test_what_a_call_changes(make: Callable[[], Any]) -> None:
    change, count = make()

    def call(x: Any) -> Any:
        change()
        return x * 2

    compiled = ox.compile(call)
    for _ in range(5):
        compiled(ONE)
    assert count() == 5 and not recordings(compiled)


def with_event() -> Any:
    stop = threading.Event()
    return stop.is_set, stop.set


def with_future() -> Any:
    future: Future[int] = Future()
    return future.done, lambda: future.set_result(1)


def with_number() -> Any:
    number = ctypes.c_int(0)
    return lambda: number.value, lambda: setattr(number, "value", 1)


@pytest.mark.parametrize("make", [with_event, with_future, with_number])
def test_what_somebody_else_changes(make: Callable[[], Any]) -> None:
    ask, change = make()
    compiled = ox.compile(lambda x: x * 0 if ask() else x)
    assert [compiled(ONE).item() for _ in range(3)] == [1, 1, 1]
    change()
    assert [compiled(ONE).item() for _ in range(3)] == [0, 0, 0]
    assert len(recordings(compiled)) == 2 and not reasons(compiled)


def test_print_that_is_called_by_c(capsys: pytest.CaptureFixture[str]) -> None:
    def call(x: Any, texts: Any) -> Any:
        [*map(print, texts)]
        return x * 2

    compiled = ox.compile(call)
    for _ in range(3):
        compiled(ONE, ("text",))
    assert capsys.readouterr().out == "text\n" * 3
    assert "print is handed on" in reasons(compiled)


def test_what_is_only_read_or_given_back_is_recorded() -> None:
    lock, pattern, text = threading.RLock(), re.compile("a+"), io.StringIO
    held = OrderedDict(a=1), defaultdict(int, b=2), Counter("c")

    def call(x: Any) -> Any:
        made = text()
        made.write("b")
        made.write("".join(key for each in held for key, _ in each.items()))
        with lock:
            return x * len(pattern.sub("", "caab" + made.getvalue()))

    compiled = ox.compile(call, fullgraph=True)
    assert [compiled(ONE).item() for _ in range(3)] == [5, 5, 5]


def test_a_call_that_names_print_and_does_not_call_it() -> None:
    compiled = ox.compile(lambda x, loud: x * 2 if not loud else print(*[x]), fullgraph=True)
    assert [compiled(ONE, False).item() for _ in range(2)] == [2, 2]
