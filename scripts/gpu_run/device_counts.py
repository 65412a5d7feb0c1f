"""Counts what a device is asked to do: host_cuda counts by itself; on a GPU, PyTorch's profiler sees CuPy's calls."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

Counting = Callable[[], AbstractContextManager[Any]]

# Calls of the CUDA runtime that wait for the device
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")
COPIES = {"Memcpy HtoD": "to device", "Memcpy DtoH": "to host"}
COMPARED = ("graphs", "waits", "to device", "to host")  # which both ways of counting count alike


def count(events: Iterable[tuple[str, bool]]) -> dict[str, int]:
    """The counts of a profiler's events: their names, and whether they are the device's own."""
    found: Counter[str] = Counter()
    for name, on_device in events:
        copy = next((kind for start, kind in COPIES.items() if name.startswith(start)), None)
        if on_device and copy:
            found[copy] += 1
        elif on_device and not name.startswith(("Memcpy", "Memset")):
            found["kernels"] += 1
        elif not on_device and name in WAITS:
            found["waits"] += 1
        elif not on_device and name.startswith("cudaGraphLaunch"):
            found["graphs"] += 1
    return dict(found)


def is_on_device(event: Any) -> bool:
    """Whether an event of PyTorch's profiler is the device's own."""
    return str(event.device_type).rpartition(".")[2] == "CUDA"


@contextmanager
def by_profiler(without: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Counts the block with PyTorch's profiler. `without` is what an empty block counts: the profiler itself waits."""
    from torch.profiler import ProfilerActivity, profile

    made: dict[str, int] = {}
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        yield made
    seen = count((event.name, is_on_device(event)) for event in profiler.events())
    made |= {name: number - without.get(name, 0) for name, number in seen.items() if number > without.get(name, 0)}


def counter() -> tuple[Counting | None, str]:
    """What counts here, and who it is; or why nothing does."""
    if "host_cuda" in sys.modules:
        return sys.modules["host_cuda"].counting, "host_cuda"
    try:
        import torch
    except ImportError:
        return None, "nothing: PyTorch, whose profiler counts, is not installed"
    if not torch.cuda.is_available():
        return None, "nothing: this PyTorch sees no GPU"
    import cupy

    torch.cuda.init()
    for _ in range(2):  # the first one also loads what the profiler needs
        with by_profiler({}) as empty:
            pass
    with by_profiler(empty) as known:
        cupy.asnumpy(cupy.ones(4) + 1)
    if known.get("kernels", 0) < 1 or known.get("to host") != 1 or known.get("waits", 0) < 1:
        return None, f"nothing: PyTorch's profiler does not see what CuPy does ({known})"
    return lambda: by_profiler(empty), "PyTorch's profiler"


@contextmanager
def kept(counting: Counting | None, counts: dict[str, int]) -> Iterator[None]:
    """Counts the block into a dictionary; nothing without a counter."""
    with counting() if counting else nullcontext({}) as found:
        yield
    counts |= {name: number for name, number in found.items() if number}


def more_than_recorded(counts: Mapping[str, int], recorded: Mapping[str, int]) -> str:
    """What is done more often than it was recorded, as text."""
    names = [name for name in COMPARED if counts.get(name, 0) > recorded.get(name, 0)]
    return ", ".join(f"{name} {counts[name]} (host_cuda: {recorded.get(name, 0)})" for name in names)
