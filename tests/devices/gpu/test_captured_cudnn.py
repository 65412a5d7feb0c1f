"""Compiled steps that cuDNN is a part of, as one CUDA graph: on a GPU with cuDNN, or on what stands for both."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from threading import Thread
from typing import Any

import numpy as np
import pytest
from gpu_and_cpu import random

import ox
from ox import nn
from ox.devices import cuda_state
from ox.devices.gpu import cudnn, cudnn_norm
from ox.devices.gpu.cuda_graph import CaptureError, GraphMemory
from ox.devices.gpu.cupy_device import cupy
from ox.errors import DeviceError

F = nn.functional
pytestmark = pytest.mark.gpu
CALLS = 8  # two are eager or step by step, and the others launch the graph
TOLERANCES = {ox.float32: 1e-4, ox.float16: 1e-2, ox.bfloat16: 4e-2}
TYPES = [*TOLERANCES]


def channels_last(x: Any) -> Any:
    """[N, C, H, W] of the values of x, that lies as [N, H, W, C]."""
    return x.contiguous(memory_format=ox.channels_last)


class Convolutions(nn.Module):
    """Of images [N, 8, 6, 6]: a bias, batch normalization, strides and groups, a transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.last = nn.Conv2d(8, 4, 3, stride=2, groups=2), nn.ConvTranspose2d(4, 3, 3)

    def forward(self, x: Any) -> Any:
        return self.last(F.relu(self.second(F.relu(self.norm(self.first(x))))))


class Attention(nn.Module):
    """Of rows [N, T, 16]: causal attention with two heads of 8 numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16, 48)

    def forward(self, x: Any) -> Any:
        q, k, v = (each.unflatten(-1, (2, 8)).transpose(1, 2) for each in self.project(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Norms(nn.Module):
    """Of rows [N, 64], which are long enough for cuDNN here."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.layer, self.rms = nn.Linear(64, 64), nn.LayerNorm(64), nn.RMSNorm(64)

    def forward(self, x: Any) -> Any:
        return self.rms(self.project(self.layer(self.project(x))))


MODELS: dict[str, tuple[type[nn.Module], tuple[int, ...]]] = {
    "convolutions": (Convolutions, (2, 8, 6, 6)),
    "attention": (Attention, (2, 9, 16)),
    "norms": (Norms, (5, 64)),
}
RUNS = {
    "convolutions": {"forward", "forward+bias", "data", "weights"},
    "attention": {"attention", "attention gradient"},
    "norms": {
        "layer norm, mean, inverse",
        "layer norm gradient",
        "rms norm",
        "rms norm, inverse",
        "rms norm gradient",
    },
}


class Training:
    """Steps on new inputs in each call, under autocast for types of 16 bits."""

    def __init__(self, name: str, dtype: Any, compiled: bool) -> None:
        ox.manual_seed(0)
        kind, self.shape = MODELS[name]
        self.model, self.dtype = kind().to("cuda"), dtype
        self.optimizer = ox.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.run: Any = ox.compile(self.step) if compiled else self.step

    def step(self, x: Any) -> Any:
        self.optimizer.zero_grad()
        with nullcontext() if self.dtype == ox.float32 else ox.autocast("cuda", self.dtype):
            loss = (self.model(x).float() ** 2).mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def losses(self, calls: range, lies: Callable[[Any], Any] = lambda x: x) -> list[float]:
        """Of these calls; `lies` gives the input as it lies in memory."""
        inputs = (random(*self.shape, seed=i, dtype=self.dtype).to("cuda") for i in calls)
        return [self.run(lies(x)).item() for x in inputs]


def check_same(captured: Training, eager: Training, got: list[float], wanted: list[float]) -> None:
    assert "one CUDA graph" in str(captured.run.explain()), captured.run.explain()
    tolerance = TOLERANCES[eager.dtype]
    np.testing.assert_allclose(got, wanted, rtol=tolerance)
    states = captured.model.state_dict().values(), eager.model.state_dict().values()
    for one, other in zip(*states, strict=True):
        a, b = one.cpu().double().numpy(), other.cpu().double().numpy()
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, np.abs(b).max()))


def since(log: Any) -> Callable[[], set[str]]:
    """What a call gives: the kinds of what has run since then."""
    before = len(log.runs)
    return lambda: {*log.runs[before:]}


@pytest.mark.usefixtures("cudnn_or_stand_in")
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_a_captured_step_is_the_eager_one(name: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cudnn_norm, "LONG_ROW", 64)
    eager, captured = (Training(name, dtype, compiled) for compiled in (False, True))
    wanted, got = (each.losses(range(CALLS)) for each in (eager, captured))
    check_same(captured, eager, got, wanted)


@pytest.mark.parametrize("name", MODELS)
def test_graphs_run_what_cudnn_computes(name: str, log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a launch of the graph, which builds nothing."""
    monkeypatch.setattr(cudnn_norm, "LONG_ROW", 64)
    captured = Training(name, ox.float16, compiled=True)
    captured.losses(range(CALLS))
    built, runs = [*log.built], since(log)
    captured.losses(range(1))
    assert runs() == RUNS[name] and log.built == built


@pytest.mark.usefixtures("cudnn_or_stand_in")
@pytest.mark.parametrize("dtype", TYPES[1:], ids=str)
def test_images_that_are_channels_last(dtype: Any) -> None:
    eager, captured = (Training("convolutions", dtype, compiled) for compiled in (False, True))
    wanted, got = (each.losses(range(CALLS), channels_last) for each in (eager, captured))
    check_same(captured, eager, got, wanted)


def test_images_are_copied_channels_last(log: Any) -> None:
    """Those that lie elsewhere in each call, to where a graph reads them."""
    w = random(4, 8, 3, 3, dtype=ox.float16).to("cuda")
    conv: Any = ox.compile(lambda x: F.conv2d(x, w))
    for i in range(4):
        x = channels_last(random(2, 8, 6, 6, seed=i, dtype=ox.float16).to("cuda"))
        close(conv(x), F.conv2d(x, w))
    assert "one CUDA graph" in str(conv.explain()) and len(log.built) == 2  # of the graph's handle, and of the thread's
    assert all(step[1] == 1 for strides in log.strides for step in strides)


def close(one: Any, other: Any) -> None:
    np.testing.assert_allclose(one.cpu().float().numpy(), other.cpu().float().numpy(), rtol=1e-2, atol=1e-2)


@pytest.mark.usefixtures("cudnn_or_stand_in")
def test_threads_that_take_turns() -> None:
    """One prepares the work, the next one captures it, and graphs outlive both."""
    eager, captured = (Training("convolutions", ox.float32, compiled) for compiled in (False, True))
    wanted, got = eager.losses(range(CALLS)), list[float]()
    for i in range(4):
        thread = Thread(target=lambda i=i: got.extend(captured.losses(range(i, i + 1))))
        thread.start()
        thread.join()
    got += captured.losses(range(4, CALLS))
    check_same(captured, eager, got, wanted)


@pytest.mark.usefixtures("cudnn_or_stand_in")
def test_graphs_keep_their_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose kernels they run, also when the handle forgets its plans."""
    eager, captured = (Training("convolutions", ox.float32, compiled) for compiled in (False, True))
    wanted, got = (each.losses(range(4)) for each in (eager, captured))
    monkeypatch.setattr(cudnn, "MOST_PLANS", 1)
    for each in (eager, captured):  # another recording, of images of another size
        each.shape = (3, 8, 8, 8)
        each.losses(range(4))
        each.shape = (2, 8, 6, 6)
    wanted, got = (each.losses(range(CALLS)) for each in (eager, captured))
    check_same(captured, eager, got, wanted)


@pytest.mark.usefixtures("cudnn_or_stand_in")
def test_captures_that_need_more_plans_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cudnn, "MOST_PLANS", 1)
    eager, captured = (Training("convolutions", ox.float32, compiled) for compiled in (False, True))
    wanted, got = (each.losses(range(CALLS)) for each in (eager, captured))
    check_same(captured, eager, got, wanted)


def test_plans_beyond_the_limit_are_forgotten(log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thread, and of the handle for graphs, where a capture that builds one counts. Those of graphs stay,
    and do not count."""
    monkeypatch.setattr(cudnn, "MOST_PLANS", 2)
    w, memory = random(4, 8, 3, 3, seed=1).to("cuda"), GraphMemory()
    images = {n: random(n, 8, 6, 6).to("cuda") for n in (1, 2, 3, 4)}

    def built(n: int, kind: str) -> int:
        """How many plans a batch of n builds."""
        before = len(log.built)
        if kind == "captured":
            memory.capture(lambda _: F.conv2d(images[n], w)).launch()
        else:
            with cuda_state.standing_in(memory.namespace) if kind == "by steps" else nullcontext():
                F.conv2d(images[n], w)
        return len(log.built) - before

    assert [built(n, "eager") for n in (1, 2, 1, 3, 1, 3)] == [1, 1, 0, 1, 1, 0]
    assert [built(n, "by steps") for n in (1, 2, 1)] == [1, 1, 0]
    assert built(3, "captured") == 1
    assert [built(n, "by steps") for n in (1, 2, 4)] == [1, 1, 1]
    assert [built(n, "captured") for n in (3, 4)] == [0, 0]
    assert [built(n, "by steps") for n in (1, 2, 1, 2)] == [1, 1, 0, 0]


def test_a_capture_remembers_what_cudnn_refuses(log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would begin again without end."""
    monkeypatch.setattr(cudnn, "MOST_PLANS", 1)
    log.refuses = lambda graph: sys.modules["cudnn"].cudnnGraphNotSupportedError("not here")
    x, w, begun = random(2, 8, 6, 6).to("cuda"), random(4, 8, 3, 3, seed=1).to("cuda"), list[int]()

    def work(_: Any) -> None:
        begun.append(1)
        assert len(begun) <= 4, "it does not end"
        F.conv2d(x, w)
        F.conv2d(x, w, padding=1)

    GraphMemory().capture(work)
    assert len(begun) == 4 and not log.built  # a handle and two plans were prepared


@pytest.mark.usefixtures("cudnn_or_stand_in")
def test_plans_that_only_the_capture_needs() -> None:
    """It ends, they are built, and it begins again."""
    x, w = random(2, 8, 6, 6).to("cuda"), random(4, 8, 3, 3, seed=1).to("cuda")
    memory, made = GraphMemory(), []

    def work(_: Any) -> None:
        made[:] = [F.relu(F.conv2d(x, w)), F.conv2d(x, w, padding=1)]

    graph = memory.capture(work)
    for _ in range(2):
        x *= 0.5
        graph.launch()
        close(made[0], F.relu(F.conv2d(x, w)))
        close(made[1], F.conv2d(x, w, padding=1))


@pytest.mark.usefixtures("cudnn_or_stand_in")
def test_plans_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*args: Any, **where: Any) -> None:
        raise MemoryError("out of memory")

    x, w = random(2, 8, 6, 6).to("cuda"), random(4, 8, 3, 3, seed=1).to("cuda")
    stream = cupy().cuda.Stream()
    F.conv2d(x[:1], w)  # makes this thread's handle
    with pytest.raises(DeviceError, match=r"(?s)a plan of cuDNN cannot be made.*run the same work once before"), stream:
        stream.begin_capture()
        try:
            F.conv2d(x, w)
        finally:
            stream.end_capture()
    monkeypatch.setattr(cudnn, "Plan", build)
    with pytest.raises(CaptureError, match="cuDNN is not prepared for a CUDA graph") as caught:
        GraphMemory().capture(lambda _: F.conv2d(x, w))
    assert caught.value.got == "out of memory"


@pytest.mark.usefixtures("cudnn_or_stand_in")
def test_memory_to_work_in_is_of_the_graph() -> None:
    """Nothing else gets it between launches."""
    x, w = random(2, 8, 6, 6).to("cuda"), random(4, 8, 3, 3, seed=1).to("cuda")
    memory, made = GraphMemory(), []
    graph = memory.capture(lambda _: made.append(F.conv2d(x, w)))
    others = [cupy().full(size, 7, np.uint8) for size in (1, 64, 512, 4096, 1 << 16) for _ in range(8)]
    for _ in range(4):
        graph.launch()
        close(made[-1], F.conv2d(x, w))
    assert all(bool((other == 7).all()) for other in others)
