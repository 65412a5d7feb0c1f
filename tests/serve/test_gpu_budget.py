"""The memory that models may claim on each GPU, and who is refused."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from ox.errors import LoadError
from ox.serve import gpu_budget
from ox.serve.gpu_budget import GpuBudget
from ox.serve.repository.entry import Slot, without_frames
from ox.serve.runtime.capture_gate import GATE

GIB = 1 << 30


def test_claims_of_each_gpu() -> None:
    budget = GpuBudget(10 * GIB)
    give_back = budget.claim("a 1", {0: 4 * GIB, 1: 9 * GIB})
    budget.claim("b 1", {0: 6 * GIB})
    with pytest.raises(LoadError, match="cuda:0 has no room for c 2") as caught:
        budget.claim("c 2", {2: GIB, 0: GIB + 1})
    line = caught.value.one_line()
    assert "at most 0 MiB, of 10,240 for all models" in line and "got 1,025 MiB" in line
    assert "loaded: a 1 4,096 MiB, b 1 6,144 MiB" in line
    give_back()
    budget.claim("c 2", {2: 10 * GIB, 0: 4 * GIB})  # what was refused has claimed nothing
    with pytest.raises(LoadError, match="cuda:2 has no room"):
        budget.claim("d 1", {2: 1})
    with pytest.raises(LoadError, match=r"loaded: no model"):
        GpuBudget(GIB).claim("e 1", {0: 2 * GIB})


def test_what_other_processes_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    free = {0: 6 * GIB, 1: 80 * GIB}
    budget = GpuBudget(10 * GIB, free.get)
    give_back = budget.claim("a 1", {0: 4 * GIB})
    free[0] = 2 * GIB  # what the model took
    budget.claim("b 1", {0: 2 * GIB})
    monkeypatch.setattr(gpu_budget.nvml, "others", lambda number: f"4711 (python3) on {number}")
    with pytest.raises(LoadError, match="cuda:0 has no room for c 1") as caught:
        budget.claim("c 1", {0: 1})
    line = caught.value.one_line()
    assert "at most 0 MiB, of 10,240 for all models (--limit gpu_memory), of which 6,144 were free" in line
    assert "were free beside other processes" in line and "other processes 4711 (python3) on 0" in line
    slot = Slot(1)
    slot.fails((), caught.value)  # type: ignore[arg-type]
    assert "were free beside other processes" in slot.why and "4711" not in slot.why  # which clients see
    with pytest.raises(LoadError, match="cuda:1 has no room"):  # more is free than the limit
        budget.claim("d 1", {1: 11 * GIB})
    give_back()
    budget._claims.clear()
    free[0] = 9 * GIB  # the other process has ended
    budget.claim("c 1", {0: 8 * GIB})


def test_models_that_are_only_garbage_are_given_back() -> None:
    class Model:
        me: Model

    budget, model = GpuBudget(GIB), Model()
    model.me = model  # which only the collector frees
    weakref.finalize(model, budget.claim("a 1", {0: GIB}))
    users: list[int] = []
    weakref.finalize(model, lambda: users.append(GATE._users))
    gc.disable()
    try:
        del model
        budget.claim("b 1", {0: GIB})
    finally:
        gc.enable()
    assert users == [1]  # no capture meanwhile


def test_a_failed_load_keeps_nothing() -> None:
    class Memory:
        pass

    def load() -> Any:
        memory = Memory()
        found.append(weakref.ref(memory))
        weakref.finalize(memory, lambda: users.append(GATE._users))
        try:
            raise RuntimeError(f"with {memory}")
        except RuntimeError as error:
            raise LoadError("no") from error

    found: list[Any] = []
    users: list[int] = []
    slot = Slot(1)
    try:
        load()
    except LoadError as error:
        slot.fails((), error)  # type: ignore[arg-type]
    assert slot.error is not None and found[0]() is None and users == [1]


def test_all_that_an_error_came_from_keeps_nothing() -> None:
    def raised(error: Exception) -> Exception:
        try:
            raise error
        except Exception:
            return error

    cause, context = raised(KeyError()), raised(OSError())
    bare = ValueError()  # never raised, so without a traceback
    bare.__cause__, bare.__context__ = cause, context
    error = LoadError("no")
    error.__cause__, context.__context__ = bare, error  # a circle
    assert without_frames(error) is error
    assert cause.__traceback__ is None and context.__traceback__ is None
