"""The memory of a GPU: limits, summaries, and what is said when there is none left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ox
from ox import nn
from ox.devices import cuda
from ox.devices.gpu.memory import size_text
from ox.errors import ArgumentError, DeviceError, OutOfMemoryError


def test_sizes_are_told_in_units() -> None:
    assert [size_text(n) for n in (0, 512, 1536, 3 << 30, 1 << 60)] == [
        "0 bytes", "512 bytes", "1.50 KiB", "3.00 GiB", "1048576.00 TiB",
    ]  # fmt: skip


def test_without_a_gpu() -> None:
    if ox.cuda.is_available():
        pytest.skip("there is a GPU here")
    assert ox.cuda.memory_summary().startswith("no GPU")
    with pytest.raises(DeviceError):
        ox.cuda.set_per_process_memory_fraction(0.5)
    assert issubclass(ox.cuda.OutOfMemoryError, RuntimeError)


@pytest.fixture
def limited() -> Iterator[int]:
    """A pool that may hold about 64 MiB more than now."""
    ox.cuda.empty_cache()
    memory = cuda.memory()
    share = (memory.held + (64 << 20)) / memory.total
    ox.cuda.set_per_process_memory_fraction(share)
    yield memory.total
    ox.cuda.set_per_process_memory_fraction(1.0)
    ox.cuda.empty_cache()


@pytest.mark.gpu
class TestOnADevice:
    def test_a_call_that_finds_no_memory(self, limited: int) -> None:
        x = ox.ones(4 << 20, device="cuda")  # 16 MiB
        with pytest.raises(ox.cuda.OutOfMemoryError) as raised:
            [x.reshape(-1, 1) + ox.ones(1, 16, device="cuda")]
        text = str(raised.value)
        assert "cuda:0 has no memory for 256.00 MiB more" in text
        assert "CuPy's pool" in text and "in use of" in text and "at most" in text
        assert "Add of A float32 [4194304, 1], B float32 [1, 16]" in text
        assert Path(__file__).name in text and "free of" in text
        for advice in ("a smaller batch", "autocast", "empty_cache", "set_per_process_memory_fraction"):
            assert advice in text
        assert isinstance(raised.value, DeviceError) and isinstance(raised.value, MemoryError)
        cupy: Any = cuda.cupy()
        assert isinstance(raised.value, cupy.cuda.memory.OutOfMemoryError)
        assert (x + 1).sum().item() == 2 * (4 << 20)  # a smaller call works

    @pytest.mark.parametrize("way", ["zeros", "to", "rand", "arange", "cupy", "optimizer"])
    def test_what_makes_tensors(self, way: str, limited: int) -> None:
        def make() -> Any:
            if way == "to":
                return ox.zeros(32 << 20).to("cuda")
            if way == "cupy":
                return cuda.cupy().empty(32 << 20, "f")
            if way == "arange":
                return ox.arange(32 << 20, device="cuda")
            if way == "optimizer":  # its state has no place any more
                p = nn.Parameter(ox.zeros(6 << 20, device="cuda"))
                p.grad = ox.zeros(6 << 20, device="cuda")
                return ox.optim.Adam([p]).step()
            return getattr(ox, way)(32 << 20, device="cuda")

        with pytest.raises(OutOfMemoryError, match=r"cuda:0 has no memory for .* more"):
            make()

    def test_the_summary(self, limited: int) -> None:
        kept = ox.ones(1 << 20, device="cuda")
        text = ox.cuda.memory_summary()
        assert text.splitlines()[0] == "memory of cuda:0" and "in use by arrays" in text
        assert f"{size_text(cuda.memory().limit)}\n" in text and size_text(cuda.memory().total) in text
        assert len(ox.cuda.memory_summary(abbreviated=True).splitlines()) == 3
        assert 0 < ox.cuda.get_per_process_memory_fraction() < 1
        del kept

    @pytest.mark.parametrize("wrong", [-0.1, 1.5, "half", True])
    def test_a_part_is_a_number(self, wrong: Any) -> None:
        with pytest.raises(ArgumentError, match=r"(?s)part of a GPU's memory.*0.0 to 1.0"):
            ox.cuda.set_per_process_memory_fraction(wrong)

    def test_a_device_that_is_full(self) -> None:
        """The memory of the device itself, not of the pool."""
        if "host_cuda" not in sys.modules:
            pytest.skip("only host_cuda has a device of any size: the stand-in has no memory")
        code = (
            "import host_cuda; host_cuda.install()\n"
            "import ox\n"
            "x = ox.ones(2 << 20, device='cuda')\n"
            "y = [x + i for i in range(5)]\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "HOST_CUDA_MEMORY": str(40 << 20)},
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert "OutOfMemoryError: cuda:0 has no memory for 8.00 MiB more" in done.stderr, done.stderr
        assert "free of 40.00 MiB" in done.stderr and "at most" not in done.stderr
