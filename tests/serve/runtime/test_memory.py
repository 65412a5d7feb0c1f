"""The memory of runs: who is refused, how, and when it is given back."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from rows import rows

from ox.clock import SYSTEM
from ox.devices import machine
from ox.devices.onnxruntime import arena
from ox.devices.onnxruntime.runtime import onnxruntime
from ox.errors import ServeError
from ox.serve.runtime import memory
from ox.serve.runtime.memory import MIB, RunMemory, Trimmer
from ox.serve.runtime.proof import prove
from ox.serve.runtime.session import Engine
from ox.serve.runtime.source import read

pytestmark = pytest.mark.usefixtures("usual_arena")

CAP = 100 * MIB


@pytest.fixture
def engine(build: Any) -> Any:
    """ConstantOfShape behind a limit of 100 MiB; other tests keep their own arena."""
    before = arena._arenas[:]
    arena._arenas.clear()
    nodes = [("ConstantOfShape", ["s"], ["y"], {})]
    path = build("shape", nodes, {"s": (TensorProto.INT64, [1])}, {"y": (TensorProto.FLOAT, None)})
    yield Engine(read(path), "cpu", 1, 1, CAP)
    arena._arenas[:] = before


def run(engine: Any, mib: float) -> Any:
    return engine.run({"s": np.array([int(mib * MIB / 4)])})


def test_alone_it_is_too_large_and_beside_others_it_may_try_again(engine: Any) -> None:
    with pytest.raises(ServeError, match="needs more memory than a run may take") as caught:
        run(engine, 4000)
    assert caught.value.status == 413
    assert caught.value.expected == "at most 100 MiB for all runs together (--limit memory)"
    assert caught.value.got == "4,000 MiB more for ConstantOfShape"
    held = run(engine, 60)  # an answer that is still being sent
    with pytest.raises(ServeError, match="taken by other requests") as caught:
        run(engine, 60)
    assert caught.value.status == 503 and caught.value.retry_after > 0
    del held
    assert run(engine, 60)[0].nbytes == 60 * MIB


def test_pieces_that_others_left_are_put_together(engine: Any) -> None:
    """Free memory in pieces that are too small for a run is no reason to refuse it."""
    for mib in (10, 20, 30):
        several = [run(engine, mib) for _ in range(45 // mib)]
        del several
    assert run(engine, 90)[0].nbytes == 90 * MIB


def test_weights_do_not_count(build: Any, engine: Any) -> None:
    weights = {"w": np.ones((3000, 10_000), np.float32)}  # 120 MB
    ends = {"x": (TensorProto.FLOAT, ["batch", 3000])}, {"y": (TensorProto.FLOAT, ["batch", 10_000])}
    path = build("large", [("MatMul", ["x", "w"], ["y"], {})], *ends, weights)
    large = Engine(read(path), "cpu", 1, 1, CAP)
    assert large.memory.arena is engine.memory.arena
    assert large.run({"x": np.ones((2, 3000), np.float32)})[0].shape == (2, 10_000)
    assert 0 < engine.memory.arena.bytes_allocated() < 10 * MIB
    for count, other in ((20_000, large), (1, engine)):  # and the limit holds as before
        feed = {"x": np.ones((count, 3000), np.float32)} if other is large else {"s": np.array([4000 * MIB // 4])}
        with pytest.raises(ServeError, match="needs more memory than a run may take"):
            other.run(feed)


def test_small_weights_are_packed_and_a_small_limit_holds(build: Any, engine: Any) -> None:
    weights = {"w": np.ones((64, 64), np.float32)}
    ends = {"x": (TensorProto.FLOAT, ["batch", 64])}, {"y": (TensorProto.FLOAT, ["batch", 64])}
    path = build("small", [("MatMul", ["x", "w"], ["y"], {})], *ends, weights)
    for limit, packed in ((CAP, True), (1024, False)):
        arena._arenas.clear()
        small = Engine(read(path), "cpu", 1, 1, limit)
        options = small._sessions[0].get_session_options()
        assert options.get_session_config_entry("session.disable_prepacking") == str(int(not packed))
        with pytest.raises(ServeError, match="needs more memory than a run may take"):
            small.run({"x": np.ones((1_000_000, 64), np.float32)})


@pytest.mark.parametrize(("rows", "limit"), [(4000, 1024), (4000, 2 * MIB), (1000, 2 * MIB)])
def test_why_there_are_no_batches(build: Any, engine: Any, rows: int, limit: int) -> None:
    """It is the memory that is missing, not valid inputs."""
    arena._arenas.clear()
    ends = {"x": (TensorProto.FLOAT, ["batch", rows, 64])}, {"y": (TensorProto.FLOAT, ["batch", rows, 64])}
    path = build("wide", [("Relu", ["x"], ["y"], {})], *ends)
    why = prove(Engine(read(path), "cpu", 1, 1, limit), (), 8).why
    assert why is not None and why.startswith("runs have too little memory to try it: ")
    assert "(--limit memory)" in why


def test_shrinking_gives_back_what_is_not_used(engine: Any) -> None:
    held = engine.memory.arena
    assert run(engine, 80)[0].nbytes == 80 * MIB
    assert held.bytes_allocated() >= 80 * MIB
    held.shrink()
    assert held.bytes_allocated() < 5 * MIB
    with_result = run(engine, 50)
    held.shrink()
    assert held.bytes_allocated() >= 50 * MIB and with_result[0][-1] == 0


def test_one_arena_for_one_limit() -> None:
    before = arena._arenas[:]
    arena._arenas.clear()
    try:
        runtime = onnxruntime()
        assert arena.current_arena() is None and memory.bytes_allocated() == 0
        memory.shrink()
        first = RunMemory(runtime, CAP).arena
        assert RunMemory(runtime, CAP).arena is first is arena.shared_arena(runtime)
        assert RunMemory(runtime, 2 * CAP).arena is not first
        assert memory.bytes_allocated() < 5 * MIB
    finally:
        arena._arenas[:] = before


@pytest.mark.parametrize(
    "text",
    [
        "Failed to allocate memory for requested buffer of size 8000000000",
        "std::bad_alloc",
        "Tile output tensor would require more than 4294967296 bytes",
        "Integer overflow",
    ],
)
def test_other_words_for_too_much(engine: Any, text: str) -> None:
    refusal = engine.memory.refusal(RuntimeError(text))
    assert refusal is not None and refusal.status == 413
    assert engine.memory.refusal(RuntimeError("indices out of bounds")) is None


def test_the_default_is_half_of_what_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    for available, limit in ((8 << 30, 4 << 30), (100 * MIB, 256 * MIB)):
        memory.default_limit.cache_clear()
        monkeypatch.setattr(memory, "available_memory", lambda available=available: available)
        assert memory.default_limit() == limit
    memory.default_limit.cache_clear()


class Used:
    """An arena whose work takes `needed` bytes again as soon as they are given back."""

    def __init__(self) -> None:
        self.bytes_allocated = self.needed = self.shrunk = 0

    def shrink(self) -> None:
        self.bytes_allocated = self.needed
        self.shrunk += 1


def test_a_peak_is_given_back_at_once() -> None:
    used = Used()
    trimmer = Trimmer(lambda: used.bytes_allocated, used.shrink, SYSTEM)
    used.bytes_allocated = 500 * MIB
    trimmer.tick()
    assert (used.bytes_allocated, used.shrunk) == (0, 1)
    used.bytes_allocated = 10 * MIB
    for _ in range(100):
        trimmer.tick()
    assert used.shrunk == 1
    used.bytes_allocated = 500 * MIB
    trimmer.tick()
    assert used.shrunk == 2


def test_what_is_needed_again_and_again_is_left_alone() -> None:
    used = Used()
    used.bytes_allocated = used.needed = 500 * MIB
    trimmer = Trimmer(lambda: used.bytes_allocated, used.shrink, SYSTEM)
    for _ in range(320):
        trimmer.tick()
    assert 5 < used.shrunk < 20  # 1, 2, 4, ... 32 ticks apart


def test_the_thread_ends() -> None:
    trimmer = Trimmer(lambda: 0, lambda: None, SYSTEM)
    trimmer.start()
    trimmer.stop()
    trimmer._thread.join(120)
    assert not trimmer._thread.is_alive()


@rows(
    ("files", "left"),
    [
        ({}, 1000 << 10),
        ({"a/memory.max": "max", "a/memory.current": "5"}, 1000 << 10),
        ({"a/memory.max": "900000", "a/memory.current": "300000"}, 600_000),
        ({"memory.max": "500000", "memory.current": "300000", "a/memory.max": "max"}, 200_000),
        (
            {
                "a/memory.max": "900000",
                "a/memory.current": "300000",
                "a/memory.stat": "anon 1\ninactive_file 100000\n",
            },
            700_000,
        ),
        ({"a/memory.max": "100", "a/memory.current": "300"}, 0),
    ],
)
def test_memory_that_is_available(tmp_path: Path, files: dict[str, str], left: int, monkeypatch: Any) -> None:
    monkeypatch.delenv("OX_LOCAL_PROCESSES", raising=False)
    monkeypatch.delenv("MPI_LOCALNRANKS", raising=False)
    (tmp_path / "groups" / "a").mkdir(parents=True)
    for name, text in files.items():
        (tmp_path / "groups" / name).write_text(text)
    (tmp_path / "self").write_text("0::/a\n")
    (tmp_path / "meminfo").write_text("MemTotal: 2000 kB\nMemAvailable: 1000 kB\n")
    where = (tmp_path / "groups", tmp_path / "self", tmp_path / "meminfo")
    assert machine.available_memory(*where) == left
    monkeypatch.setenv("OX_LOCAL_PROCESSES", "2")
    assert machine.available_memory(*where) == left // 2


def test_a_system_that_does_not_say(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.delenv("OX_LOCAL_PROCESSES", raising=False)
    monkeypatch.delenv("MPI_LOCALNRANKS", raising=False)
    nowhere = (tmp_path / "none",) * 3
    assert machine.available_memory(*nowhere) > 0
    monkeypatch.setattr(machine, "os", SimpleNamespace(environ={}))
    assert machine.available_memory(*nowhere) == 4 << 30
