"""Bytes of living tensors, now and at most."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

import ox
from ox import nn
from ox.core import constant_sizes


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    """Tensors in reference cycles of earlier tests go before, not within."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_what_is_alive() -> None:
    gc.collect()
    before = ox.memory_stats()["allocated_bytes.all.current"]
    x = ox.tensor(np.zeros(100_000, np.float32))
    views = [x.reshape(100, 1000), x[:10], x.detach()]
    assert ox.memory_stats()["allocated_bytes.all.current"] - before == 400_000
    del x, views
    gc.collect()
    assert ox.memory_stats()["allocated_bytes.all.current"] == before


def test_shapes_that_calls_share_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    x = ox.zeros(6)
    for most in (constant_sizes.MOST_FIXED, 0):  # also where they go, as there are too many
        monkeypatch.setattr(constant_sizes, "MOST_FIXED", most)
        with ox.track_memory() as memory:
            x.reshape(2, 3), x.reshape(3, 2), x.reshape(1, 6)
            assert memory.current == memory.before and memory.made == 0


def test_the_peak_of_a_block() -> None:
    x = ox.zeros(1000)
    with ox.track_memory() as memory:
        start = memory.current
        assert start >= 4000 and memory.peak == start == memory.before
        y = x + 1.0
        z = y * 2.0
        assert memory.current == start + 8000
        del y
        assert memory.current == start + 4000
        z.reshape(10, 100)
        assert memory.current == start + 4000 and memory.peak == start + 8000 and memory.made == 8000
        memory.reset_peak()
        assert memory.peak == start + 4000
    assert ox.memory_stats()["allocated_bytes.all.peak"] >= memory.current
    z + 1.0  # nobody counts any more
    assert memory.made == 8000


def test_what_a_graph_keeps_is_counted() -> None:
    layers = nn.Sequential(*[nn.Tanh() for _ in range(8)])
    x = ox.zeros(1000, requires_grad=True)
    with ox.track_memory() as memory:
        with ox.no_grad():
            layers(x)
        without = memory.peak - memory.before
        memory.reset_peak()
        loss = layers(x)
        kept = memory.peak - memory.before
    assert kept == 8 * 4000 and without == 2 * 4000
    del loss


def test_cuda_asked_without_a_gpu() -> None:
    if not ox.cuda.is_available():
        assert ox.cuda.memory_stats()["allocated_bytes.all.current"] == 0 == ox.cuda.memory_allocated()
