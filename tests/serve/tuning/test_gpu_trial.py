"""Batch sizes on a GPU: what it has memory for, and what is quicker. No time is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_session import CudaSession
from manual_clock import ManualClock
from onnx import TensorProto

from ox.clock import SYSTEM
from ox.devices.gpu.cupy_device import Memory
from ox.serve import ModelConfig, RequestLimits
from ox.serve.batching.admission import Budget
from ox.serve.config.placement import Placement
from ox.serve.gpu_budget import GpuBudget
from ox.serve.repository.model import Model
from ox.serve.response_memory import ResponseMemory
from ox.serve.runtime.capture_gate import GATE
from ox.serve.runtime.load_control import LoadControl
from ox.serve.runtime.lost_device import LostDeviceError
from ox.serve.runtime.session import Engine
from ox.serve.runtime.source import read
from ox.serve.tuning import gpu_trial, measure, tune
from ox.serve.tuning.measure import best_rows

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]

MIB = 1 << 20
Seconds = Callable[[int], float]


class Card:
    """A GPU of 1,000 MiB on a clock of its own: runs of n samples take memory that stays taken, and time.

    Args:
        seconds: of a run, by its samples.
        mib: of a sample.
        limit: the MiB of samples that a session may take.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: Seconds, mib: float = 0.0, limit: float = 1e9) -> None:
        self.clock, self.sizes, self.bound = ManualClock(), list[int](), list[int]()
        self.seconds, self.mib, self.limit, self.taken = seconds, mib, limit, 0.0
        real = CudaSession.run_with_iobinding, CudaSession.run

        def run_bound(session: CudaSession, binding: Any, options: Any) -> None:
            self.bound.append(binding.rows)
            self.run(binding.rows)
            real[0](session, binding, options)

        def run(session: CudaSession, names: Any, feed: Any, options: Any = None) -> Any:
            self.run(len(feed["x"]))
            return real[1](session, names, feed, options)

        monkeypatch.setattr(CudaSession, "run_with_iobinding", run_bound)
        monkeypatch.setattr(CudaSession, "run", run)
        monkeypatch.setattr(gpu_trial.cuda, "memory", self.memory)
        monkeypatch.setattr(measure, "best_rows", best_rows)

    def memory(self, device: str) -> Memory:
        assert device == "cuda:0" and (GATE._users or GATE._capturing)  # no capture of another thread meanwhile
        return Memory(0, 0, int((1000 - self.taken) * MIB), 2000 * MIB, 2000 * MIB)

    def run(self, rows: int) -> None:
        self.sizes.append(rows)
        if rows * self.mib > self.limit:
            raise RuntimeError("Available memory of 1048576 is smaller than requested bytes of 2097152")
        self.taken = max(self.taken, rows * self.mib)
        self.clock.advance(self.seconds(rows))

    def load(self, path: Path, budget: Budget | None = None, **options: Any) -> Model:
        control = LoadControl(clock=self.clock)
        return Model(path, ModelConfig("cuda", **options), RequestLimits(), control=control, budget=budget)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (lambda n: 1e-3, 1024),  # a batch takes as long as a sample
        (lambda n: 0.01 * max(1, n / 128), 128),
        (lambda n: 0.01 * max(1, n / 36), 32),  # the usual size is nearly as quick
        (lambda n: 1e-3 * n**1.5, 1),
    ],
)
def test_the_quickest(mlp: Path, monkeypatch: pytest.MonkeyPatch, seconds: Seconds, expected: int) -> None:
    model = Card(monkeypatch, seconds).load(mlp)
    assert model.proof.max_rows == expected and "rows" in model.fit.measured
    assert (model.fit.bound or 1) == expected


@pytest.mark.parametrize(
    ("mib", "limit", "instances", "expected"),
    [
        (1.0, 1e9, None, 256),  # 512 might take more than half of what was free
        (1.0, 1e9, 2, 128),
        (1.0, 100.0, None, 64),  # gpu_mem_limit
        (300.0, 1e9, None, 2),
    ],
)
def test_what_there_is_memory_for(
    mlp: Path, monkeypatch: pytest.MonkeyPatch, mib: float, limit: float, instances: int | None, expected: int
) -> None:
    import cupy

    card = Card(monkeypatch, lambda n: 1e-3, mib, limit)
    used = cupy.get_default_memory_pool().used_bytes
    before, after = used(), list[int]()
    monkeypatch.setattr(gpu_trial, "free_pools", lambda _: after.append(used()))
    model = card.load(mlp, instances=instances)
    assert model.proof.max_rows == expected and max(card.sizes) <= 2 * expected
    assert CudaSession.made[0].shrunk == ["gpu:0"]
    assert after[0] - before <= read(mlp).weights + 4096  # weights that instances share


@pytest.mark.parametrize(("instances", "expected"), [(None, 64), (2, 32), (7, 16)])
def test_what_the_host_has_memory_for(
    mlp: Path, monkeypatch: pytest.MonkeyPatch, instances: int | None, expected: int
) -> None:
    """Pinned memory of each instance, the batches that are measured, and one that is tried."""
    monkeypatch.setattr(gpu_trial, "available_memory", lambda: 2 * 3 * 64 * 4 * (64 + 10))
    card = Card(monkeypatch, lambda n: 1e-3)
    assert card.load(mlp, instances=instances).proof.max_rows == expected == max(card.sizes)


@pytest.mark.parametrize(
    ("left", "instances", "expected", "bound"),
    [
        (2 * 64, 1, 64, 64),  # rows of buffers
        (2 * 64 - 1, 1, 32, 32),
        (4 * 64, 2, 64, 64),
        (2 * 32 - 1, 1, 1024, 0),  # the usual size has no buffers, so that all are tried without
    ],
)
def test_what_the_limit_of_all_models_leaves(
    mlp: Path, monkeypatch: pytest.MonkeyPatch, left: int, instances: int, expected: int, bound: int
) -> None:
    """Half of it is left to other models."""
    row, weights = 4 * (64 + 10), read(mlp).weights if instances > 1 else 0
    gpus = GpuBudget(instances * MIB + weights + left * row)
    budget = Budget(1 << 20, 1 << 20, ResponseMemory(1 << 20, SYSTEM), gpus)
    model = Card(monkeypatch, lambda n: 1e-3).load(mlp, budget, instances=instances, cuda={"gpu_mem_limit": "1MiB"})
    assert model.proof.max_rows == expected and model.fit.bound == bound
    assert gpus.free(0) == (left - instances * bound) * row


@pytest.mark.parametrize(("other", "expected"), [("the same", 256), ("a smaller one", 64)])
def test_each_kind_of_gpu_is_tried(mlp: Path, monkeypatch: pytest.MonkeyPatch, other: str, expected: int) -> None:
    """The first has room for more samples than the second."""
    card = Card(monkeypatch, lambda n: 1e-3)
    indices = list[int]()

    @contextmanager
    def trial(engine: Engine, row: Any, max_dims: Any, index: int, limit: int = 1024) -> Iterator[tuple[Any, int]]:
        indices.append(index)
        yield (lambda feed: card.run(len(feed["x"]))), min(limit, (256, 64)[index])

    model = card.load(mlp, max_rows=2)
    engine = model.engine
    monkeypatch.setattr(engine, "placement", Placement.parse("cuda:0,cuda:1"))
    monkeypatch.setattr(engine.buffers, "instances", 4)
    monkeypatch.setattr(gpu_trial, "gpu_trial", trial)
    monkeypatch.setattr(gpu_trial.cuda, "device_name", lambda number: ("the same", other)[number])
    monkeypatch.setattr(tune, "gpu_trial", trial)
    row, tried = {"x": np.zeros((1, 64), np.float32)}, [0] if other == "the same" else [0, 1]
    assert measure._best_rows(engine, row, ModelConfig("cuda")) == expected
    assert indices == tried
    assert max(tune._sizes(model, row, 200)) == min(128, expected)
    assert indices == 2 * tried


@pytest.mark.parametrize(("clients", "expected"), [(32, 32), (200, 128), (4096, 256)])
def test_sizes_that_tuning_measures(mlp: Path, monkeypatch: pytest.MonkeyPatch, clients: int, expected: int) -> None:
    card = Card(monkeypatch, lambda n: 1e-3, 1.0)
    model = card.load(mlp, max_rows=2)
    row = {"x": np.zeros((1, 64), np.float32)}
    card.sizes.clear()
    assert list(tune._sizes(model, row, clients)) == [1 << power for power in range(expected.bit_length())]
    assert max(card.sizes) <= max(clients, 32)  # no size is tried that the clients do not fill


def test_sizes_the_host_cannot_make_end_the_trial(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = np.repeat

    def repeat(array: Any, size: int, axis: int) -> Any:
        if size > 128:
            raise MemoryError
        return real(array, size, axis)

    card = Card(monkeypatch, lambda n: 1e-3)
    monkeypatch.setattr(gpu_trial.np, "repeat", repeat)
    assert card.load(mlp).proof.max_rows == 128


def test_sizes_with_limits_are_tried_with_the_largest_input(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = (TensorProto.FLOAT, ["batch", "tokens"])
    path = build("open", [("Relu", ["x"], ["y"], {})], {"x": ends}, {"y": ends})
    tokens: list[int] = []
    real = CudaSession.run

    def run(session: CudaSession, names: Any, feed: Any, options: Any = None) -> Any:
        tokens.append(feed["x"].shape[1])
        return real(session, names, feed, options)

    monkeypatch.setattr(CudaSession, "run", run)
    assert Card(monkeypatch, lambda n: 1e-3, 1.0).load(path).proof.max_rows == 32 and set(tokens) == {8}
    tokens.clear()
    assert Card(monkeypatch, lambda n: 1e-3, 1.0).load(path, max_dims={"tokens": 500}).proof.max_rows == 256
    assert tokens[:3] == [8, 500, 8]


def test_sizes_with_huge_limits_are_not_tried(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = (TensorProto.FLOAT, ["batch", "tokens"])
    path = build("open", [("Relu", ["x"], ["y"], {})], {"x": ends}, {"y": ends})
    model = Card(monkeypatch, lambda n: 1e-3, 1.0).load(path, max_dims={"tokens": 10**12})
    assert model.proof.max_rows == 32


def test_slow_first_runs_end_the_trial_and_do_not_count(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN looks for algorithms in the first run of each size."""
    card = Card(monkeypatch, lambda n: 1e-3 if n in card.sizes[:-1] else 0.3)
    assert card.load(mlp).proof.max_rows == 128 and card.sizes[:9] == [1, 1, 2, 4, 8, 16, 32, 64, 128]


def test_graphs_are_captured_for_the_sizes_that_were_chosen(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(monkeypatch, lambda n: 0.01 * max(1, n / 64))
    model = card.load(mlp, cuda={"enable_cuda_graph": True})
    graphs = CudaSession.made[0].graphs
    assert model.proof.max_rows == 64 and set(graphs[: graphs.index("-1") + 9]) == {"-1"}
    captured = {rows for rows, graph in zip(card.bound, graphs, strict=True) if graph != "-1"}
    assert captured == {1, 2, 4, 8, 16, 32, 64}


def test_graphs_are_captured_where_batches_are_not_faster(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Card(monkeypatch, lambda n: 1e-3 * n**1.5).load(mlp, cuda={"enable_cuda_graph": True})
    assert model.proof.max_rows == 2 and str(model.graphs) == "2 CUDA graphs (batch sizes 1, 2)"


def test_a_gpu_that_is_lost_meanwhile(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(rows: int) -> float:
        if rows >= 8:
            raise RuntimeError("CUDA failure 719: unspecified launch failure ; GPU=0")
        return 1e-3

    with pytest.raises(LostDeviceError, match="cuda:0 has failed"):
        Card(monkeypatch, fail).load(mlp)


def test_a_gpu_without_free_memory_runs_small_batches(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(monkeypatch, lambda n: 1e-3)
    monkeypatch.setattr(gpu_trial.cuda, "memory", lambda device: Memory(0, 0, 0, 2000 * MIB, 2000 * MIB))
    assert card.load(mlp).proof.max_rows == 1
