"""What is counted of a device."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

import pytest
from gpu_run import device_counts

EVENTS = [
    ("aten::ones", False),
    ("cudaLaunchKernel", False),
    ("vectorized_elementwise_kernel", True),
    ("sm90_xmma_gemm_f32f32", True),
    ("cudaMemcpyAsync", False),
    ("Memcpy HtoD (Pageable -> Device)", True),
    ("Memcpy DtoH (Device -> Pinned)", True),
    ("Memcpy DtoD (Device -> Device)", True),
    ("Memset (Device)", True),
    ("cudaStreamSynchronize", False),
    ("cudaEventSynchronize", False),
    ("cudaGraphLaunch", False),
]


def test_events_of_a_profiler() -> None:
    counts = device_counts.count(EVENTS)
    assert counts == {"kernels": 2, "to device": 1, "to host": 1, "waits": 2, "graphs": 1}


def test_more_than_recorded() -> None:
    counts = {"waits": 2, "to host": 1, "kernels": 900, "launches": 900}
    assert device_counts.more_than_recorded(counts, {"waits": 2, "to host": 2}) == ""
    assert device_counts.more_than_recorded(counts, {"waits": 1}) == "waits 2 (host_cuda: 1), to host 1 (host_cuda: 0)"


def test_without_pytorch_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert device_counts.counter() == (None, "nothing: PyTorch, whose profiler counts, is not installed")
    counts: dict[str, int] = {}
    with device_counts.kept(None, counts):
        pass
    assert counts == {}


def test_a_pytorch_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = ModuleType("torch")
    torch.cuda = SimpleNamespace(is_available=lambda: False)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert device_counts.counter() == (None, "nothing: this PyTorch sees no GPU")


def event(name: str, on_device: bool) -> SimpleNamespace:
    return SimpleNamespace(name=name, device_type=f"DeviceType.{'CUDA' if on_device else 'CPU'}")


class Profiler:
    """PyTorch's profiler, with what it sees of this block; its own wait is among it."""

    seen: list[list[SimpleNamespace]] = []  # noqa: RUF012

    def __init__(self, activities: list[str]) -> None:
        self.mine = [event("cudaDeviceSynchronize", False)]

    def __enter__(self) -> Profiler:
        self.seen.append(self.mine)
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def events(self) -> list[SimpleNamespace]:
        return self.mine


@pytest.mark.parametrize("sees", [True, False])
def test_the_profiler_is_tried_first(sees: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts if it sees a known piece of work of CuPy's, and its own wait is not counted."""
    torch, profiler, cupy = ModuleType("torch"), ModuleType("torch.profiler"), ModuleType("cupy")
    torch.cuda = SimpleNamespace(is_available=lambda: True, init=lambda: None)  # type: ignore[attr-defined]
    profiler.ProfilerActivity = SimpleNamespace(CPU="CPU", CUDA="CUDA")  # type: ignore[attr-defined]
    profiler.profile = Profiler  # type: ignore[attr-defined]

    def asnumpy(array: object) -> None:
        if sees:
            Profiler.seen[-1] += [event("fill", True), event("add", True), event("Memcpy DtoH", True)]
            Profiler.seen[-1].append(event("cudaStreamSynchronize", False))

    cupy.ones, cupy.asnumpy = (lambda size: 1), asnumpy  # type: ignore[attr-defined]
    for name, module in (("torch", torch), ("torch.profiler", profiler), ("cupy", cupy)):
        monkeypatch.setitem(sys.modules, name, module)
    counting, who = device_counts.counter()
    if not sees:
        assert counting is None and "does not see what CuPy does" in who
        return
    assert who == "PyTorch's profiler"
    counts: dict[str, int] = {}
    with device_counts.kept(counting, counts):
        asnumpy(None)
    assert counts == {"kernels": 2, "to host": 1, "waits": 1}


def test_the_stand_in_counts_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def counting() -> Iterator[dict[str, int]]:
        counts: dict[str, int] = {}
        yield counts
        counts |= {"waits": 3, "graphs": 0}

    monkeypatch.setitem(sys.modules, "host_cuda", SimpleNamespace(counting=counting))
    found, who = device_counts.counter()
    counts: dict[str, int] = {}
    with device_counts.kept(found, counts):
        pass
    assert who == "host_cuda" and counts == {"waits": 3}
