"""The memory that models may claim on each GPU, and who is refused."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from ox.errors import LoadError
from ox.serve.gpu_budget import GpuBudget
from ox.serve.repository.entry import Slot

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


def test_models_that_are_only_garbage_are_given_back() -> None:
    class Model:
        me: Model

    budget, model = GpuBudget(GIB), Model()
    model.me = model  # which only the collector frees
    weakref.finalize(model, budget.claim("a 1", {0: GIB}))
    gc.disable()
    try:
        del model
        budget.claim("b 1", {0: GIB})
    finally:
        gc.enable()


def test_a_failed_load_keeps_nothing() -> None:
    class Memory:
        pass

    def load() -> Any:
        memory = Memory()
        found.append(weakref.ref(memory))
        try:
            raise RuntimeError(f"with {memory}")
        except RuntimeError as error:
            raise LoadError("no") from error

    found: list[Any] = []
    slot = Slot(1)
    try:
        load()
    except LoadError as error:
        slot.fails((), error)  # type: ignore[arg-type]
    assert slot.error is not None and found[0]() is None
